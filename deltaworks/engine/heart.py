"""The heartbeat: progress and lag to the control store each second, from a thread of its own.

It goes on beating while a long batch or a compaction runs, and keeps the lease renewed meanwhile. Whether the app
makes progress is judged from what the beat says, not from the beat itself.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from deltaworks.control.heartbeats import DriverState
from deltaworks.engine.broker import Broker, Edge
from deltaworks.engine.flow import Flow
from deltaworks.engine.gaps import Examiner
from deltaworks.engine.outlets.pusher import Outlets
from deltaworks.engine.ownership import Ownership
from deltaworks.errors import ControlError, LeaseLostError

BEAT_SECONDS = 1.0
LOOK_SECONDS = 5.0
GAPS_EACH = 3
"""The broker is asked about gaps in every so many looks..."""
GAPS_SECONDS_MAX = 2.0
"""...and not for longer: a long backlog of them must not hold up what the heartbeat tells."""
log = logging.getLogger("deltaworks.heart")


class Heart:
    """Beats until it is stopped; `lost` tells that a newer epoch owns the app."""

    def __init__(self, ownership: Ownership) -> None:
        """Nothing beats before `start`."""
        self.ownership = ownership
        self.state: DriverState = "starting"
        self.error: str | None = None
        self.lost: LeaseLostError | None = None
        self._flow: Flow | None = None
        self._outlets: Outlets | None = None
        self._broker: Broker | None = None
        self._examiner: Examiner | None = None
        self._ends: dict[str, dict[str, Edge]] = {}
        self._rate, self._rate_rows, self._looked_at = 0.0, 0, time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)
        # a broker that is away answers late: the lease must be renewed meanwhile
        self._eyes = threading.Thread(target=self._watch, name="eyes", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def watch(self, flow: Flow, outlets: Outlets, broker: Broker, examiner: Examiner) -> None:
        """Tell this flow's progress from now on, and its copies'; have the gaps in what it reads explained."""
        self._flow, self._outlets, self._broker, self._examiner = flow, outlets, broker, examiner
        self._eyes.start()

    def stop(self, state: DriverState, *, error: BaseException | None = None) -> None:
        """Beat a last time with the final state."""
        self._stop.set()
        if self._thread.ident is None:  # the app was never owned: there is nobody to beat for
            return
        self._thread.join(timeout=30)
        self.error = None if error is None else f"{type(error).__name__}: {str(error)[:500]}"
        self.state = state
        self._beat()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.ownership.renew()
                self._beat()
            except LeaseLostError as error:
                self.lost = error
                return
            except Exception:  # a heart that stops beating for a small reason would have the app restarted
                log.exception("a beat failed")
            self._stop.wait(BEAT_SECONDS)

    def _beat(self) -> None:
        progress = self._progress()
        try:
            self.ownership.store.beat(self.ownership.lease, state=self.state, progress=progress)
        except LeaseLostError:
            raise
        except ControlError as error:
            log.warning("%s", error)

    def _progress(self) -> dict[str, Any]:
        flow = self._flow
        if flow is None:
            return {"batches": 0, "rows": 0, "rows_per_second": 0.0, "lag": {}, "tables": {}, "error": self.error}
        pulse, offsets = flow.pulse, flow.offsets()
        lag = {
            topic: {p: max(0, edge.high - offsets.get(topic, {}).get(p, edge.low)) for p, edge in parts.items()}
            for topic, parts in self._ends.items()
        }
        tables = {}
        for name, source in list(flow.inputs.items()):
            counts = pulse.tables.get(name)
            tables[name] = {
                "version": source.table.version,
                "rows_in": counts.read if counts else 0,
                "refused": counts.refused if counts else 0,
            }
        return {
            "batches": pulse.batches,
            "rows": pulse.rows,
            "rows_per_second": round(self._rate, 1),
            "lag": lag,
            "last_batch_at": _iso(pulse.last_batch_at),
            "last_commit_at": _iso(pulse.last_commit_at),
            "behind": [writer.declared.name for writer in flow.writers if writer.behind()],
            "detached": {
                name: {"error": one.error, "since": one.since.isoformat(), "failures": one.failures}
                for name, one in list(flow.detached.tables.items())
            },
            "outlets": [] if self._outlets is None else self._outlets.progress(),
            "error": self.error,
            "tables": tables,
        }

    def _watch(self) -> None:
        flow, broker = self._flow, self._broker
        assert flow is not None, "watch() starts this"
        assert broker is not None, "watch() starts this"
        looks = 0
        while not self._stop.is_set():
            self._look(flow, broker)
            looks += 1
            if looks % GAPS_EACH == 0:
                self.explain_gaps(seconds_max=GAPS_SECONDS_MAX)
            self._stop.wait(LOOK_SECONDS)

    def explain_gaps(self, *, seconds_max: float) -> None:
        """Ask the broker for a while; what it says is committed with bronze's next batch, or when the flow settles."""
        examiner = self._examiner
        assert examiner is not None, "watch() gives it"
        _quietly(lambda: examiner.look(seconds_max=seconds_max))

    def _look(self, flow: Flow, broker: Broker) -> None:
        """The rate, what the broker has, and the consumer group for lag tools."""
        now = time.monotonic()
        self._rate = (flow.pulse.rows - self._rate_rows) / max(now - self._looked_at, 0.1)
        self._looked_at, self._rate_rows = now, flow.pulse.rows
        offsets = flow.offsets()
        found = _quietly(lambda: broker.reachable(broker.edges(flow.topics), offsets))
        self._ends = found or self._ends
        _quietly(lambda: broker.commit(offsets))


def _quietly(act: Callable[[], Any]) -> Any:
    """The broker may be away: the heartbeat goes on, and the query itself says so loudly enough."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001  # a client's errors of any kind are worth a line here, not more
        log.warning("broker: %s", error)
        return None


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
