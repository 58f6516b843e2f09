"""The driver of an app: takes the lease, runs the flow, beats, obeys commands, drains and leaves.

Commands and heartbeats run here on the main loop, under the same lock as the micro-batches: Spark does not call
foreachBatch when nothing arrives.
"""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from deltaworks import catalog as catalogs
from deltaworks.control.heartbeats import DriverState
from deltaworks.control.leases import Lease
from deltaworks.control.store import Store
from deltaworks.engine.broker import Broker, Edge
from deltaworks.engine.closing import Closing
from deltaworks.engine.commands import obey
from deltaworks.engine.flow import Flow
from deltaworks.engine.session import open_session
from deltaworks.engine.source import open_stream
from deltaworks.errors import CommandError, ControlError, DeltaworksError, LeaseHeldError, LeaseLostError
from deltaworks.local import processes
from deltaworks.settings import Settings

EXIT_NOT_OWNER = 75
LOOP_SECONDS = 0.25
BEAT_SECONDS = 1.0
SETTLE_SECONDS = 10.0  # a position that brought no rows is committed so often at most
log = logging.getLogger("deltaworks.driver")


class Driver:
    """One app's process."""

    def __init__(self, *, app: str, settings: Settings, drain: bool = False) -> None:
        """Prepare; nothing is opened before `run`."""
        self.app, self.settings, self.drain = app, settings, drain
        self.lock = threading.Lock()
        self.stopping = False
        self.failure: BaseException | None = None
        self.store = Store(settings.control_dsn())
        self.lease: Lease | None = None
        self._lease_ends = 0.0
        self._beaten_at = 0.0
        self._rate_at, self._rate_rows, self._rate = time.monotonic(), 0, 0.0
        self._ends: dict[str, dict[str, Edge]] = {}

    def run(self) -> int:
        """Run until stopped, drained or superseded; returns the exit code."""
        return self._own(self._work)

    def run_commands(self, *, until: int) -> int:
        """Own a stopped app just long enough to carry out its queued commands up to `until`; no Spark is started."""
        return self._own(lambda: self._work_off(until))

    def _own(self, work: Callable[[], None]) -> int:
        self.catalog = catalogs.load(self.settings.project)
        self.catalog.app(self.app)  # an unknown app is refused before anything is touched
        self.store.declare_apps(self.catalog.apps)
        try:
            self.lease = self._acquire()
        except LeaseHeldError as error:
            log.error("%s", error)  # an expected end: one line, no trace
            return EXIT_NOT_OWNER
        log.info("app %s is owned with epoch %d", self.app, self.lease.epoch)
        try:
            self._beat("starting", force=True)
            work()
        except LeaseLostError as error:
            log.error("%s", error)  # an expected end: one line, no trace
            return EXIT_NOT_OWNER
        except BaseException as error:
            self.failure = error
            self._beat("failed", force=True)
            self._release()  # the query has stopped: nothing of this process commits any more
            raise
        self._beat("stopped", force=True)
        self._release()
        log.info("app %s ended well", self.app)
        return 0

    # -- ownership ----------------------------------------------------------------------------------------------

    def _acquire(self) -> Lease:
        """Take the lease; a predecessor that died leaves it to expire, so wait that long."""
        pid = os.getpid()
        patience = time.monotonic() + self.settings.lease_seconds + 1
        while True:
            try:
                asked = time.monotonic()
                lease = self.store.acquire(
                    self.app,
                    owner=f"driver {pid}",
                    seconds=self.settings.lease_seconds,
                    pid=pid,
                    process_started=processes.started(pid) or "",
                )
                self._lease_ends = asked + self.settings.lease_seconds
                return lease
            except LeaseHeldError:
                held = self.store.lease(self.app)
                owner_lives = held is not None and processes.lives(held.pid, held.process_started)
                if owner_lives or time.monotonic() > patience:
                    raise
                time.sleep(LOOP_SECONDS)

    def _release(self) -> None:
        lease = self.lease
        if lease is not None:
            self._ask(lambda: self.store.release(lease))

    def guard(self) -> None:
        """Called before every commit: the lease must be ours and still run."""
        assert self.lease is not None
        if time.monotonic() < self._lease_ends - self.settings.lease_seconds / 3:
            return  # renewed lately; a newer epoch can only start after the lease has ended
        self._renew()

    def _renew(self) -> None:
        """Renew the lease; while the control store is away, work until it ends, then wait for the store."""
        assert self.lease is not None
        while True:
            asked = time.monotonic()
            try:
                self.lease = self.store.renew(self.lease, seconds=self.settings.lease_seconds)
                self._lease_ends = asked + self.settings.lease_seconds
                return
            except LeaseLostError:
                raise
            except ControlError as error:
                if time.monotonic() < self._lease_ends:
                    return
                log.warning("waiting for the control store: %s", error)
                time.sleep(1)

    # -- work ---------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that this driver owns the app with."""
        assert self.lease is not None
        return self.lease.epoch

    def _work(self) -> None:
        app = self.settings.app(self.app)
        spark = open_session(name=f"deltaworks {self.app}", settings=self.settings, app=app)
        self.broker = Broker(bootstrap=self.settings.kafka, group=f"deltaworks.{self.app}")
        flow = self._flow()
        closing = Closing(flow, self.store)
        flow.on_commit = closing.committed
        query = self._start(spark, flow)
        try:
            self._loop(spark, query, closing)
        finally:
            with self.lock:
                self.stopping = True
            query.stop()
            self.broker.close()
        with self.lock:
            flow.settle()
            closing.announce()

    def _flow(self) -> Flow:
        """Open the app's tables and fence older owners out."""
        self.flow = Flow(app=self.app, epoch=self.epoch, catalog=self.catalog, settings=self.settings, guard=self.guard)
        self.flow.fence()
        self.store.requeue_running(self.app, self.epoch)  # a command that died with an older owner is done again
        return self.flow

    def _work_off(self, until: int) -> None:
        flow = self._flow()
        while not self.store.command(until).finished:
            self.guard()
            command = self.store.take(self.app, epoch=self.epoch)
            if command is None:
                raise CommandError(f"command {until}", "is not queued any more", 'Run "deltaworks commands list"')
            obey(command, store=self.store, flow=flow)

    def _start(self, spark: SparkSession, flow: Flow) -> StreamingQuery:
        starts = flow.begin(self.broker.edges(flow.topics))
        app = self.settings.app(self.app)
        stream = open_stream(
            spark, bootstrap=self.settings.kafka, offsets=starts, rows_per_batch_max=app.rows_per_batch_max
        )
        # The checkpoint is scratch: positions are in the ledger, so torn or stale files here mean nothing.
        scratch = self.settings.data / "checkpoints" / self.app
        shutil.rmtree(scratch, ignore_errors=True)
        writer = stream.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", str(scratch))
        writer = writer.queryName(self.app)
        if self.drain:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(app.trigger_seconds * 1000)} milliseconds").start()

    def _on_batch(self, batch: DataFrame, _batch_id: int) -> None:
        with self.lock:
            if self.stopping:
                return  # the batch comes again after the next start: positions have not moved
            self.flow.micro_batch(batch)

    def _loop(self, spark: SparkSession, query: StreamingQuery, closing: Closing) -> None:
        while True:
            ended = self._ended(query)
            self.guard()
            self._beat("running")
            closing.announce()
            self._catch_up(spark)
            self._commands()
            if ended and not self._behind():
                return
            if self._desired_stopped():
                log.info("the desired state is stopped: draining")
                self._beat("draining", force=True)
                return

    def _ended(self, query: StreamingQuery) -> bool:
        time.sleep(LOOP_SECONDS)
        if query.isActive:  # also notices a JVM that is gone: the call raises
            return False
        error = query.exception()
        if error is not None:
            raise error
        if not self.drain:
            raise DeltaworksError(f"app {self.app}", "its query ended by itself", "Look at the log above")
        return True

    def _catch_up(self, spark: SparkSession) -> None:
        """Tables that are behind go on while no batch arrives."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            if self.flow.behind():
                self.flow.turn(spark)
            self.flow.settle(after_seconds=SETTLE_SECONDS)
        finally:
            self.lock.release()

    def _behind(self) -> bool:
        with self.lock:
            return self.flow.behind()

    def _commands(self) -> None:
        command = self._ask(lambda: self.store.take(self.app, epoch=self.epoch))
        if command is not None:
            with self.lock:
                obey(command, store=self.store, flow=self.flow)

    def _desired_stopped(self) -> bool:
        if self.drain:
            return False
        app = self._ask(lambda: self.store.app(self.app))
        return app is not None and app.desired == "stopped"

    def _ask(self, question: Callable[[], Any]) -> Any:
        """An answer of the control store, None while it is away."""
        try:
            return question()
        except LeaseLostError:
            raise
        except ControlError as error:
            log.warning("%s", error)
            return None

    # -- heartbeat ----------------------------------------------------------------------------------------------

    def _beat(self, state: DriverState, *, force: bool = False) -> None:
        now = time.monotonic()
        lease = self.lease
        if lease is None or (not force and now - self._beaten_at < BEAT_SECONDS):
            return
        self._beaten_at = now
        progress = self._progress(now)
        self._ask(lambda: self.store.beat(lease, state=state, progress=progress))

    def _progress(self, now: float) -> dict[str, Any]:
        error = None if self.failure is None else f"{type(self.failure).__name__}: {str(self.failure)[:500]}"
        flow: Flow | None = getattr(self, "flow", None)
        if flow is None:
            return {"batches": 0, "rows": 0, "rows_per_second": 0.0, "lag": {}, "tables": {}, "error": error}
        pulse = flow.pulse
        if now - self._rate_at >= 5:
            self._rate = (pulse.rows - self._rate_rows) / (now - self._rate_at)
            self._rate_at, self._rate_rows = now, pulse.rows
            self._ends = self._edges(flow)
            offsets = flow.offsets()
            self._quietly(lambda: self.broker.commit(offsets))
        offsets = flow.offsets()
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
            "behind": [w.declared.name for w in flow.writers if w.behind()],
            "error": error,
            "tables": tables,
        }

    def _edges(self, flow: Flow) -> dict[str, dict[str, Edge]]:
        found = self._quietly(lambda: self.broker.reachable(self.broker.edges(flow.topics), flow.offsets()))
        return found or self._ends

    def _quietly(self, act: Callable[[], Any]) -> Any:
        """The broker may be away: the heartbeat goes on, the query itself says so loudly enough."""
        try:
            return act()
        except Exception as error:  # noqa: BLE001  # client errors of any kind are only worth a line here
            log.warning("broker: %s", error)
            return None


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()


def leave(code: int) -> None:
    """End this process although the JVM's gateway threads are still there."""
    logging.shutdown()
    os._exit(code)
