"""The heartbeat: progress and lag to the control store each second, from a thread of its own.

It goes on beating while a long batch or a compaction runs, and keeps the lease renewed meanwhile. Whether the app
makes progress is judged from what the beat says, not from the beat itself.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from deltaworks.control.heartbeats import DriverState
from deltaworks.engine import disk
from deltaworks.engine.ages import Ages
from deltaworks.engine.broker import Broker, Edge
from deltaworks.engine.caution import Caution, is_java_gone, is_of_memory
from deltaworks.engine.flow import Flow
from deltaworks.engine.gaps import Examiner
from deltaworks.engine.outlets.pusher import Outlets
from deltaworks.engine.ownership import Ownership
from deltaworks.errors import ControlError, DiskError, LeaseLostError

BEAT_SECONDS = 1.0
LOOK_SECONDS = 5.0
RATE_SECONDS = 60.0
"""Rows are counted as a batch ends, and one may take longer than from one look to the next."""
GAPS_EACH = 3
"""The broker is asked about gaps in every so many looks..."""
GAPS_SECONDS_MAX = 2.0
"""...and not for longer: a long backlog of them must not hold up what the heartbeat tells."""
log = logging.getLogger("deltaworks.heart")


class Rate:
    """How much a count has risen lately, by the second."""

    def __init__(self, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """The count begins at 0; `seconds` say how long "lately" is."""
        self._seconds, self._clock = seconds, clock
        self._known = deque([(clock(), 0)])
        self.per_second = 0.0

    def note(self, count: int) -> None:
        """Tell the count as it is now: the rate is from the last one that is old enough, or the first, to this."""
        now = self._clock()
        self._known.append((now, count))
        while len(self._known) > 2 and self._known[1][0] <= now - self._seconds:  # one from before it stays
            self._known.popleft()
        since, before = self._known[0]
        self.per_second = (count - before) / (now - since) if now > since else 0.0


class Heart:
    """Beats until it is stopped; `lost` tells that a newer epoch owns the app, or that the disk failed."""

    def __init__(self, ownership: Ownership) -> None:
        """Nothing beats before `start`."""
        self.ownership = ownership
        self.state: DriverState = "starting"
        self.error: str | None = None
        self.caution = Caution()
        self.worked_at: float | None = None  # when an owner without a stream had something in hand, since 1970
        self._died_of: dict[str, bool] = {}  # what the next life asks of this one's end
        self.lost: LeaseLostError | DiskError | None = None
        self._flow: Flow | None = None
        self._outlets: Outlets | None = None
        self._broker: Broker | None = None
        self._examiner: Examiner | None = None
        self._ends: dict[str, dict[str, Edge]] = {}
        self._rate = Rate(seconds=RATE_SECONDS)
        self._ages = Ages()
        self._saved: dict[str, int] = {}
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
        self._died_of = {"out_of_memory": is_of_memory(error), "java_gone": is_java_gone(error)}
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
        known = {"careful": self.caution.told(), "worked_at": _iso(self.worked_at), **self._died_of}
        return self._work() | {name: value for name, value in known.items() if value}

    def _work(self) -> dict[str, Any]:
        flow = self._flow
        if flow is None:
            return {"batches": 0, "rows": 0, "rows_per_second": 0.0, "lag": {}, "tables": {}, "error": self.error}
        status = flow.status
        lag = {
            topic: {p: max(0, edge.high - status.offsets.get(topic, {}).get(p, edge.low)) for p, edge in parts.items()}
            for topic, parts in self._ends.items()
        }
        return {
            "batches": status.batches,
            "rows": status.rows,
            "rows_per_second": round(self._rate.per_second, 1),
            "lag": lag,
            "last_batch_at": _iso(status.last_batch_at),
            "last_commit_at": _iso(status.last_commit_at),
            "behind": list(status.behind),
            "waited_seconds": dict(self._ages.seconds),
            "suspended": {
                name: {"error": one.error, "since": one.since.isoformat(), "failures": one.failures}
                for name, one in status.suspended.items()
            },
            "broken": {
                name: [{"rule": one.rule.name, "rows": one.rows, "critical": one.rule.critical} for one in found]
                for name, found in status.broken.items()
                if found
            },
            "uncounted": {name: files for name, files in status.uncounted.items() if files},
            "outlets": [] if self._outlets is None else self._outlets.progress(),
            "error": self.error,
            "tables": {
                name: {"version": one.version, "rows_in": one.read, "refused": one.refused}
                for name, one in status.tables.items()
            },
        }

    def _watch(self) -> None:
        flow, broker = self._flow, self._broker
        assert flow is not None, "watch() starts this"
        assert broker is not None, "watch() starts this"
        looks = 0
        while not self._stop.is_set():
            self._look(flow, broker)
            self._save(flow)
            looks += 1
            if looks % GAPS_EACH == 0:
                self.explain_gaps(seconds_max=GAPS_SECONDS_MAX)
            self._stop.wait(LOOK_SECONDS)

    def _save(self, flow: Flow) -> None:
        """Have the disk hold what was committed since the last look: a power cut takes no more than that away."""
        at = {name: one.version for name, one in flow.status.tables.items()}
        if at == self._saved:
            return
        try:
            disk.sync(flow.settings.lake)
        except DiskError as error:
            self.lost = error
        self._saved = at

    def explain_gaps(self, *, seconds_max: float) -> None:
        """Ask the broker for a while; what it says is committed with bronze's next batch, or when the flow settles."""
        examiner = self._examiner
        assert examiner is not None, "watch() gives it"
        _quietly(lambda: examiner.look(seconds_max=seconds_max))

    def _look(self, flow: Flow, broker: Broker) -> None:
        """The rate, what the broker has, and the consumer group for lag tools."""
        self._rate.note(flow.status.rows)
        offsets = flow.status.offsets
        found = _quietly(lambda: broker.reachable(broker.edges(flow.topics), offsets))
        self._ends = found or self._ends
        highs = None if found is None else _highs(found)
        self._ages.note(ends=highs, taken=offsets, behind=flow.status.behind)
        _quietly(lambda: broker.commit(offsets))


def _highs(edges: Mapping[str, Mapping[str, Edge]]) -> dict[str, dict[str, int]]:
    """By topic and partition the next offset, where there is any record."""
    return {t: {p: edge.high for p, edge in parts.items() if edge.high > edge.low} for t, parts in edges.items()}


def _quietly(act: Callable[[], Any]) -> Any:
    """The broker may be away: the heartbeat goes on, and the query itself says so loudly enough."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001  # a client's errors of any kind are worth a line here, not more
        log.warning("broker: %s", error)
        return None


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
