"""The driver of an app: takes the lease, runs the flow, obeys commands, drains and leaves.

Commands run here on the main loop, under the same lock as the micro-batches: Spark does not call foreachBatch when
nothing arrives.
"""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from deltaworks import catalog as catalogs
from deltaworks.control.commands import RECOMPUTE, Command
from deltaworks.control.store import Store
from deltaworks.engine import disk
from deltaworks.engine.broker import Broker
from deltaworks.engine.caution import Caution, caution_after
from deltaworks.engine.clocks import Clocks
from deltaworks.engine.closing import Closing
from deltaworks.engine.commands import Orders
from deltaworks.engine.flow import Flow
from deltaworks.engine.gaps import BrokerWitness, Examiner
from deltaworks.engine.heart import Heart
from deltaworks.engine.outlets.pusher import Outlets
from deltaworks.engine.ownership import Ownership
from deltaworks.engine.points import die_at
from deltaworks.engine.recompute_process import RecomputeProcess
from deltaworks.engine.recomputing import stand_behind
from deltaworks.engine.same_log import SameTopics
from deltaworks.engine.session import open_session
from deltaworks.engine.source import open_stream
from deltaworks.engine.torn import mend
from deltaworks.errors import (
    CommandError,
    ControlError,
    DeltaworksError,
    LeadersMovedError,
    LeaseHeldError,
    LeaseLostError,
    SourceError,
)
from deltaworks.settings import Settings

EXIT_NOT_OWNER = 75
LOOP_SECONDS = 0.25
UNMET_SECONDS = 10.0  # between two looks at what validations have said of tables
ASK_SECONDS = 1.0  # between two looks into the control store: four in a second took a thirtieth of a driver's time
WAIT_SECONDS_MAX = 1.0  # for the end of a batch, before the loop looks whether the app is still ours
ORDERS_SHARE = 0.25  # of the time that the last batch took: so long orders may hold up the next one
LOOK_SECONDS_MAX = 10.0  # no longer is the stream waited for, to look for rows for the first time
SETTLE_SECONDS = 10.0  # a position that brought no rows is committed so often at most
AWAY_SECONDS = 30.0  # between two warnings that the control store is away
OUTLETS_SECONDS_MAX = 10.0  # for copies, before the driver leaves: the next one goes on where they are
LAST_LOOK_SECONDS = 5.0  # at gaps, before the driver leaves: the broker may have deleted them when the next one comes
MOVES_TOLD = 3  # from so many moves of leaders in a row on each is a warning
LEFT = "maxOffsetsBehindLatest"  # of a topic's source, what a batch left of what there was when it was planned
log = logging.getLogger("deltaworks.driver")


class Driver:
    """One app's process."""

    def __init__(self, *, app: str, settings: Settings, drain: bool = False) -> None:
        """Prepare; nothing is opened before `run`."""
        self.app, self.settings, self.drain = app, settings, drain
        self.catalog = catalogs.load(settings.project)
        self.catalog.app(app)  # an unknown app is refused before anything is touched
        self.store = Store(settings.control_dsn())
        self.ownership = Ownership(self.store, app=app, seconds=settings.lease_seconds)
        self.heart = Heart(self.ownership)
        self.recompute_process: RecomputeProcess | None = None  # works on recomputations, where this runs for long
        self.clocks = Clocks()
        self.caution = Caution()
        self.lock = threading.Lock()
        self.stopping = False
        self.failure: BaseException | None = None  # of anything under the lock: from then on nothing is committed
        self._anew = False  # whether another query is to start: what this one reads stays out, and is read again
        self._moves = 0  # so many times in a row a leader had moved when something was to be vouched for
        self._batch_seconds = 0.0  # what the last batch took
        self._rows_read_max = 0  # of a topic in a batch, as the query was started
        self._took_all = False  # whether this query has once taken all that Kafka had
        self._batches_seen = 0  # how many there had been when nothing ran for the last time
        self._started_at = 0.0
        self._looked = False  # whether the stream has looked for rows
        self._asked_at = -ASK_SECONDS
        self._unmet_asked_at = -UNMET_SECONDS
        self._requeued = False  # whether the orders that died with an older owner are queued again
        self._away_since: float | None = None  # when the control store was first found away
        self._told_at = 0.0

    def run(self) -> int:
        """Run until stopped, drained or superseded; returns the exit code."""
        return self._own(self._work)

    def run_commands(self, *, until: int) -> int:
        """Own a stopped app just long enough to carry out its queued commands up to `until`, without Spark in here."""
        return self._own(lambda: self._work_off(until))

    def _own(self, work: Callable[[], None]) -> int:
        if self.settings.fail_at is not None:
            die_at(self.settings.fail_at)
        self.store.declare_apps(self.catalog.apps)
        try:
            self.ownership.take()
            self.clocks.store_says(self.ownership.lease.acquired_at)
            log.info("app %s is owned with epoch %d", self.app, self.ownership.epoch)
            self._look_back()
            self.heart.start()
            work()
            disk.sync(self.settings.lake)
            self.heart.stop("stopped")
        except (LeaseHeldError, LeaseLostError) as error:
            log.error("%s", error)  # an expected end: one line, no trace
            return EXIT_NOT_OWNER
        except BaseException as error:
            if (newer := self.ownership.superseded()) is not None:
                # a version taken, a stage cleared away: whatever it met, the app is a successor's by now
                log.error("%s (met: %s)", newer, error)
                return EXIT_NOT_OWNER
            self.heart.stop("failed", error=error)
            self.ownership.give_back()  # the query has stopped: nothing of this process commits any more
            raise
        self.ownership.give_back()
        log.info("app %s ended well", self.app)
        return 0

    def _look_back(self) -> None:
        """Learn how the life before ended, before this one's first beat takes the place of its last."""
        tables = (declared.name for declared in self.catalog.app(self.app))
        self.caution = self.heart.caution = caution_after(self.store.heartbeat(self.app), tables)
        if self.caution.deaths == 1 and not self.caution.tables:
            log.info("the life before ended without a word")
        elif self.caution.deaths:
            smaller = self._rows_max() < self.settings.app(self.app).rows_per_batch_max
            log.warning(
                "lives that ended without a word or out of memory, in a row: %d."
                " Each table takes a batch by Spark first%s",
                self.caution.deaths,
                f"; of a topic at most {self._rows_max()} rows are read at once at first" if smaller else "",
            )

    def _rows_max(self) -> int:
        return self.caution.rows_max(self.settings.app(self.app).rows_per_batch_max)

    def _work(self) -> None:
        app = self.settings.app(self.app)
        spark = open_session(name=f"deltaworks {self.app}", settings=self.settings, app=app, few_rows=True)
        broker = Broker(bootstrap=self.settings.kafka, group=f"deltaworks.{self.app}")
        flow = self._open()
        self._forget_unmet()
        self._learn_unmet()
        if not self.drain:  # which may have rows of few tables only
            flow.plan_ahead(spark)
        self._obey_waiting(spark)
        outlets = Outlets(self.catalog.app(self.app), self.settings, guard=self.ownership.guard)
        closing = Closing(flow, self.store)
        if not self.drain:
            self.recompute_process = RecomputeProcess(
                self.store, self.settings, app=self.app, epoch=self.ownership.epoch
            )
        flow.on_commit = closing.committed
        query = self._start(spark, flow, broker)
        outlets.start()
        self.heart.watch(flow, outlets, broker, Examiner(BrokerWitness(bootstrap=self.settings.kafka), flow.bronze))
        self.heart.state = "running"
        try:
            while not self._loop(spark, query, closing):
                query.stop()
                query = self._start(spark, flow, broker)
        except BaseException:
            outlets.close()
            raise
        finally:
            with self.lock:
                self.stopping = True
            try:
                if self.recompute_process is not None:
                    self._ask(self.recompute_process.close)
            finally:
                query.stop()
        self._leave(flow, closing, outlets)

    def _leave(self, flow: Flow, closing: Closing, outlets: Outlets) -> None:
        """What is left to do once no batch comes any more."""
        try:
            if self.failure is not None:  # the last batch, while the app was draining
                raise self.failure
            self.heart.explain_gaps(seconds_max=LAST_LOOK_SECONDS)
            with self.lock:
                try:
                    flow.settle()
                except LeadersMovedError as moved:  # the next driver begins to read anew in any case
                    log.warning("gaps are booked later: %s", moved)
                closing.look()
                closing.announce()
            behind = outlets.finish(seconds_max=OUTLETS_SECONDS_MAX)
        finally:
            outlets.close()
        error = flow.suspended.error() or behind
        if self.drain and error is not None:  # a drain is to leave nothing behind
            raise error

    def _work_off(self, until: int) -> None:
        flow = self._open()
        self.heart.state = "draining"  # it has no stream, and leaves when this is done
        if self.store.command(until).kind == RECOMPUTE:
            self._see_recomputed(until, flow)
            return
        while not self.store.command(until).finished:
            self._still_ours()
            command = self._take_order()
            if command is None:
                raise CommandError(f"command {until}", "is not queued any more", 'Run "deltaworks commands list"')
            self._carry_out(command, flow)

    def _see_recomputed(self, until: int, flow: Flow) -> None:
        """Have recomputations carried out up to this one, and what they publish, until a stream is wanted."""
        stand_behind()
        process = RecomputeProcess(
            self.store, self.settings, app=self.app, epoch=self.ownership.epoch, settled_seconds=0
        )
        try:
            while not self._is_wanted_since():
                self._still_ours()
                self.heart.worked_at = time.time()
                if not self._has_ended(until):
                    self._ask(process.look)
                elif process.pid is None:
                    break
                else:  # it has others in hand, or tells those that were carried out together their end
                    self._ask(process.see_to_its_end)
                command = self._ask(self._take_order)
                if command is not None:
                    self._carry_out(command, flow)
                else:
                    time.sleep(ASK_SECONDS)  # nothing waits, and the store tells nobody when something does
        finally:
            self._ask(process.close)

    def _carry_out(self, command: Command, flow: Flow) -> None:
        self.orders.begin(command)
        while self.orders.in_hand is not None:
            self._still_ours()
            flow.take_slice(str(command.table_name), None)
            self.orders.step()

    def _has_ended(self, number: int) -> bool:
        found = self._ask(lambda: self.store.command(number))
        return found is not None and found.finished

    def _is_wanted_since(self) -> bool:
        """Whether somebody wants a stream, and has said so since this owner began."""
        app = self._ask(lambda: self.store.app(self.app))
        began = self.ownership.lease.acquired_at
        return app is not None and app.desired == "running" and app.desired_at > began

    def _obey_waiting(self, spark: SparkSession) -> None:
        """Begin what was ordered while nobody owned the app: it may be what lets the first batch through."""
        while self.orders.in_hand is None and self._obey(spark):
            self._still_ours()

    def _obey(self, spark: SparkSession) -> bool:
        """Do one step of the order in hand, or of the next one; False when there is none."""
        if self.orders.in_hand is not None:
            self.orders.step()
            return True
        command = self._ask(self._take_order)
        if command is not None:
            self.orders.begin(command, spark)
        return command is not None

    def _open(self) -> Flow:
        """Open the app's tables, as far as they are whole, and fence older owners out."""
        inputs = {one.name: one.inputs for one in self.catalog.app(self.app)}
        mend(self.app, inputs, lake=self.settings.lake, guard=self.ownership.guard)
        self.flow = Flow(
            app=self.app,
            epoch=self.ownership.epoch,
            catalog=self.catalog,
            settings=self.settings,
            guard=self.ownership.guard,
            clocks=self.clocks,
            caution=self.caution,
        )
        if (last := self.flow.last_commit()) is not None:
            self.clocks.lake_says(last)
        self.flow.fence()
        self.orders = Orders(self.store, self.flow)
        return self.flow

    def _take_order(self) -> Command | None:
        """The next order; what died with an older owner is done again."""
        epoch = self.ownership.epoch
        if not self._requeued:
            self.store.requeue_running(self.app, epoch)
            self._requeued = True
        return self.store.take(self.app, epoch=epoch)

    def _start(self, spark: SparkSession, flow: Flow, broker: Broker) -> StreamingQuery:
        """Begin to read where the ledger is; raises SourceError if a topic does not have what was read of it."""
        topics = SameTopics(broker, flow.topics)  # before the offsets: then those are of these, or of later ones
        starts = flow.begin(broker.edges(flow.topics), broker=broker)
        for bronze in flow.bronze:
            bronze.before_commit = partial(self._vouch, topics)
        app = self.settings.app(self.app)
        self._rows_read_max = self._rows_max()
        stream = open_stream(
            spark, bootstrap=self.settings.kafka, offsets=starts, rows_per_batch_max=self._rows_read_max
        )
        # The checkpoint is scratch: positions are in the ledger, so torn or stale files here mean nothing.
        scratch = self.settings.data / "checkpoints" / self.app
        _remove(scratch)
        self._anew = self._took_all = False
        writer = stream.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", str(scratch))
        writer = writer.queryName(self.app)
        if self.drain:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(app.trigger_seconds * 1000)} milliseconds").start()

    def _on_batch(self, batch: DataFrame, _batch_id: int) -> None:
        with self.lock:
            if self.stopping or self.failure is not None or self._anew:
                return  # the batch comes again after the next start: positions have not moved
            began, before = time.monotonic(), self.flow.status.rows
            try:
                self.flow.micro_batch(batch)
            except LeadersMovedError as error:
                self._read_anew(error)
            except BaseException as error:  # a panic in delta-rs is no Exception
                self.failure = error
                raise
            self._batch_seconds = time.monotonic() - began
            if self.flow.status.rows > before:
                self.caution.brought_rows(self.settings.app(self.app).rows_per_batch_max)
                if self._rows_read_max < self._rows_max():
                    self._anew = True  # a query keeps the bound that it was started with
                    log.info("batches came through: of a topic %d rows are read at once now", self._rows_max())

    def _vouch(self, topics: SameTopics, seconds_max: float) -> None:
        """Raise what `SameTopics.check` does, or know that no leader has moved."""
        topics.check(seconds_max)
        self._moves = 0

    def _read_anew(self, error: LeadersMovedError) -> None:
        """Have another query begin where the ledger is; hold the lock."""
        self._anew = True
        self._moves += 1
        if self._moves < MOVES_TOLD:  # each restart of a broker is one
            log.info("%s", error)
        else:
            log.warning(
                "%s. That was so %d times in a row, and nothing was committed: look what the brokers say of it",
                error,
                self._moves,
            )

    def _loop(self, spark: SparkSession, query: StreamingQuery, closing: Closing) -> bool:
        """Work until the app is to stop, or has drained; False if it is to go on with another query."""
        self._started_at = time.monotonic()
        while True:
            time.sleep(LOOP_SECONDS)
            if self._anew and self.failure is None:
                return False
            ended = self._ended(query)
            self._still_ours()
            closing.announce()
            asks = ended or time.monotonic() - self._asked_at >= ASK_SECONDS
            if asks:
                self._asked_at = time.monotonic()
            if asks and self.recompute_process is not None:
                self._ask(self.recompute_process.look)
            if self.caution.deaths and not self._took_all:
                took = ended or _has_taken_all(query)
                # asked last: what was put off for another query counts as taken by this one
                self._took_all = took and not self._anew
            if ended or self._has_looked(query):
                self._between_batches(spark, closing, asks=asks)
            if ended and not self._behind() and self.orders.in_hand is None:
                return not self._anew  # in its last batch
            if asks and time.monotonic() - self._unmet_asked_at >= UNMET_SECONDS:
                self._learn_unmet()
            if asks and self._desired_stopped():
                log.info("the desired state is stopped: draining")
                self.heart.state = "draining"
                return True

    def _ended(self, query: StreamingQuery) -> bool:
        if query.isActive:  # also notices a JVM that is gone: the call raises
            return False
        error = query.exception()
        if error is not None:
            raise self.failure or error  # what a batch met, else wrapped in a trace of Spark's
        if not self.drain:
            raise DeltaworksError(f"app {self.app}", "its query ended by itself", "Look at the log above")
        return True

    def _has_looked(self, query: StreamingQuery) -> bool:
        """Whether the stream has looked for rows once: its first batch is not to wait for a turn that has none yet."""
        if not self._looked:
            late = time.monotonic() - self._started_at > LOOK_SECONDS_MAX
            self._looked = late or self.flow.status.batches > 0 or query.status["message"].startswith("Waiting")
        return self._looked

    def _still_ours(self) -> None:
        if self.heart.lost is not None:
            raise self.heart.lost

    def _between_batches(self, spark: SparkSession, closing: Closing, *, asks: bool) -> None:
        """What is to be done while no batch runs: tables that are behind go on, idle ones settle, days end, commands.

        Without `asks` no new command is looked for; one that is in hand goes on.

        Where batches take longer than they are to be apart, the next one begins a moment after one ends: who only tried
        whether the lock is free would hardly ever get it, and the small files that every batch reads would pile up.
        """
        if not self.lock.acquire(timeout=WAIT_SECONDS_MAX):
            return
        try:
            if self.failure is not None:  # the query is about to say so
                return
            # while batches come, who is behind has had a slice in each: another one here would hold up the next batch
            seen, self._batches_seen = self._batches_seen, self.flow.status.batches
            if seen == self._batches_seen and self.flow.behind():
                self.flow.turn(spark)
            self._lay_caution_down()
            try:
                self.flow.settle(after_seconds=SETTLE_SECONDS)
            except LeadersMovedError as error:
                self._read_anew(error)
            closing.look()
            until = time.monotonic() + ORDERS_SHARE * self._batch_seconds
            # an order that waits for a table's turn would wait here in vain
            while (asks or self.orders.in_hand is not None) and self._obey(spark):
                if time.monotonic() >= until or self.flow.behind():
                    break
        except BaseException as error:
            self.failure = error  # before the lock is free: a batch that waits for it must not go on from here
            raise
        finally:
            self.lock.release()

    def _forget_unmet(self) -> None:
        """Forget what validations found of expectations that the suites do not have any more."""
        for name, those in self.flow.suspending.items():
            self._ask(partial(self.store.forget_unmet, name, but=those))

    def _learn_unmet(self) -> None:
        """Learn what validations found; while nobody answers, what is known stays."""
        self._unmet_asked_at = time.monotonic()
        found = self._ask(self.store.unmet_expectations)
        if found is not None:
            self.flow.learn_unmet(found)

    def _lay_caution_down(self) -> None:
        """Go on as ever once nothing is left of what the last owner had in hand; hold the lock."""
        if not self.caution.deaths or not self._took_all or self.flow.behind():
            return
        self.caution.caught_up(suspended=self.flow.suspended.tables)
        log.info("all is caught up: no need to be careful any more")
        # one query keeps its bound; a drain's that has ended has read all
        self._anew = self._anew or (not self.drain and self._rows_read_max < self._rows_max())

    def _behind(self) -> bool:
        with self.lock:
            return self.flow.behind()

    def _desired_stopped(self) -> bool:
        if self.drain:
            return False
        app = self._ask(lambda: self.store.app(self.app))
        return app is not None and app.desired == "stopped"

    def _ask(self, question: Callable[[], Any]) -> Any:
        """An answer of the control store, None while it is away, which is told now and then."""
        now = time.monotonic()
        try:
            answer = question()
        except LeaseLostError:
            raise
        except ControlError as error:
            if self._away_since is None:
                self._away_since, self._told_at = now, now - AWAY_SECONDS
            if now - self._told_at >= AWAY_SECONDS:
                log.warning("%s", error)
                self._told_at = now
            return None
        if self._away_since is not None:
            log.info("the control store is back after %.0f s", now - self._away_since)
            self._away_since = None
        return answer


def _has_taken_all(query: StreamingQuery) -> bool:
    """Whether a batch of this query took all that Kafka had, or there was nothing to take.

    What a batch brought does not tell: Spark shares its bound among the partitions, and counts what is no row.
    """
    status, last = query.status, query.lastProgress
    if last is None:  # there was no batch
        return bool(status["message"].startswith("Waiting") and not status["isDataAvailable"])
    return all(source["metrics"].get(LEFT) == "0" for source in last["sources"])


def _remove(folder: Path) -> None:
    """Remove a folder with all that is in it: Spark would start where a checkpoint that stays there says."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise SourceError(str(folder), f"cannot be removed ({error.strerror})", "Remove it, then start again") from None


def leave(code: int) -> None:
    """End this process although the JVM's gateway threads are still there."""
    logging.shutdown()
    os._exit(code)
