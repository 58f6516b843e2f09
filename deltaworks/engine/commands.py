"""Orders to the owner of a table, carried out between micro-batches."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from deltaworks.control.commands import Command
from deltaworks.control.store import Store
from deltaworks.engine import disk, maintenance
from deltaworks.engine.commit import Committer
from deltaworks.engine.flow import Flow, Steps
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.poison import is_of_rows
from deltaworks.engine.publish import publish
from deltaworks.engine.suspended import Clock, first_line
from deltaworks.engine.trimming import STAGED, staged_since
from deltaworks.engine.writers.patches import VALUE, Patch
from deltaworks.errors import (
    CommandError,
    CommitLostError,
    ControlError,
    ForeignCommitError,
    LeaseLostError,
)

log = logging.getLogger("deltaworks.commands")
KINDS = (
    "compact", "vacuum", "accept_bad_rows", "replay_refused_rows", "discard_refused_rows", "apply_late_rows",
    "publish", "rebuild", "patch_refused_row", "withdraw_patch", "expire", "discard_refused_row",
    "revise_mark",
)  # fmt: skip
LOOK_SECONDS = 1.0  # between two questions whether an order is still wanted, while nothing new is told
RETRY_SECONDS = 1.0  # between two questions to a control store that is away: it may be for minutes


class _CancelledError(Exception):
    """The order in hand was withdrawn."""


class Orders:
    """Carries out one order at a time, in steps; between two of them micro-batches go on."""

    def __init__(self, store: Store, flow: Flow, *, clock: Clock = time.monotonic) -> None:
        """Nothing is in hand; `clock` gives seconds."""
        self.store, self.flow, self.clock = store, flow, clock
        self.in_hand: Command | None = None
        self._steps: Steps | None = None
        self._told: Mapping[str, Any] = {}
        self._began = self._looked_at = 0.0

    def begin(self, command: Command, spark: SparkSession | None = None) -> None:
        """Take an order up and do its first step; many have no other.

        `spark`: the driver's session, if it has one; without it all is done from Arrow.
        """
        log.info("command %s: %s %s", command.id, command.kind, command.table_name)
        self.in_hand, self._told = command, {}
        self._began = self._looked_at = self.clock()
        self._steps = carry_out(command, self.flow, spark)
        self.step()

    def step(self) -> None:
        """Do the next step of what is in hand; write how it ended when it has.

        Only what says that this process may not go on with its tables is raised.
        """
        assert self.in_hand is not None
        assert self._steps is not None
        number, epoch = self.in_hand.id, self.flow.epoch
        current = [
            table for table in self.flow.tables() if table.left_behind() is None
        ]  # one that is suspended may be older
        try:
            self._report(next(self._steps))
        except StopIteration as done:
            result = done.value
            self._end(lambda: self.store.finish(number, result, epoch=epoch))
        except _CancelledError:
            self._end(lambda: self.store.cancelled(number, epoch=epoch))
        except (LeaseLostError, CommitLostError, ForeignCommitError):
            raise
        except Exception as error:
            for table in current:  # what fails after its commit leaves a handle that lags behind
                if (lost := table.left_behind()) is not None:
                    raise lost from error
            finding = first_line(error)
            # the whole is for the log: Spark's carry a trace of the JVM; what quotes values is for nobody
            if finding != str(error) and not is_of_rows(error):
                log.exception("command %s failed", number)
            self._end(lambda: self.store.fail(number, finding, epoch=epoch))

    def _report(self, progress: Mapping[str, Any]) -> None:
        """Tell how far it is, and learn whether it is still wanted."""
        assert self.in_hand is not None
        now = self.clock()
        if progress == self._told and now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        try:
            found = self.store.report(self.in_hand.id, progress, epoch=self.flow.epoch)
        except LeaseLostError:
            raise
        except ControlError as error:  # the work goes on, somebody just cannot watch it
            log.warning("command %s: %s", self.in_hand.id, error)
            return
        self._told = progress
        if found.cancel_asked_at is not None:
            raise _CancelledError
        limit = found.timeout_seconds
        if limit is not None and now - self._began > limit:
            finding = f"took longer than its {limit:g} s"
            raise CommandError(f"command {found.id}", finding, "What it has done stays; give the order again to go on")

    def _end(self, end: Callable[[], None]) -> None:
        if self._steps is not None:
            self._steps.close()
        self.in_hand = self._steps = None
        disk.sync(self.flow.settings.lake)
        _tell(end, self.flow)


def _tell(end: Callable[[], None], flow: Flow) -> None:
    """Write how the command ended; while the control store is away, wait for it as every commit does."""
    while True:
        try:
            end()
        except LeaseLostError:
            raise
        except ControlError as error:
            log.warning("%s", error)
            flow.guard()
            time.sleep(RETRY_SECONDS)
        else:
            return


def carry_out(command: Command, flow: Flow, spark: SparkSession | None = None) -> Steps:
    """The steps of an order."""
    match command.kind:
        case "compact":
            return (yield from _compact(_table(command, flow), flow, command))
        case "vacuum":
            return (yield from _vacuum(_table(command, flow), flow, command))
        case "rebuild" if command.table_name == flow.book.table.name:
            return {"commits": flow.rebuild_book()}
        case "replay_refused_rows":
            name, cause = _table(command, flow).name, command.arguments.get("cause")
            return (yield from flow.replay_refused(name, cause=cause, command=command.id, spark=spark))
        case "apply_late_rows":
            return (yield from flow.apply_late(_table(command, flow).name, command=command.id, spark=spark))
        case "expire":
            return (yield from flow.expire(_table(command, flow).name, command=command.id, spark=spark))
        case "publish":
            folder = flow.settings.data / STAGED / str(command.arguments["folder"])
            return (yield from publish(flow, folder, command=command.id))
        case (
            "accept_bad_rows"
            | "discard_refused_rows"
            | "discard_refused_row"
            | "patch_refused_row"
            | "withdraw_patch"
            | "revise_mark"
        ):
            return _decide(command, flow)
        case kind:
            raise CommandError(f"command {command.id}", f"unknown kind {kind!r}", f"Known are {', '.join(KINDS)}")


def _compact(table: OwnedTable, flow: Flow, command: Command) -> Steps:
    """A table with those beside it: all small files at once or, `by_debt`, only where it pays, a part in each step."""
    committer, before = _committer(flow), maintenance.size_of(table)
    done = {f"{name}_before": value for name, value in before.items()}
    for one in (*flow.sides.get(table.name, {}).values(), table):
        if not command.arguments.get("by_debt"):
            maintenance.compact(one, command=command.id, committer=committer)
            continue
        for replaced in maintenance.compact_debts(one, command=command.id, committer=committer):
            yield {**done, "files_replaced": replaced}
    after = maintenance.size_of(table)
    return {**done, **{f"{name}_after": value for name, value in after.items()}, "version": table.version}


def _vacuum(table: OwnedTable, flow: Flow, command: Command) -> Steps:
    asked, committer = command.arguments.get("hours"), _committer(flow)
    hours_asked = maintenance.VACUUM_HOURS if asked is None else int(asked)

    def vacuum(one: OwnedTable, readers: Mapping[str, int], *, hours: int) -> dict[str, Any]:
        read_since = staged_since(flow.settings.data / STAGED)
        return maintenance.vacuum(
            one, readers=readers, hours=hours, command=command.id, committer=committer, read_since=read_since
        )

    found = vacuum(table, flow.readers(table.name), hours=hours_asked)
    for side in list(flow.sides.get(table.name, {}).values()):  # a micro-batch between two steps may make another
        yield {"files": found["files"]}
        found["files"] += vacuum(side, {}, hours=hours_asked)["files"]
    yield {"files": found["files"]}
    vacuum(flow.book.table, {}, hours=maintenance.VACUUM_HOURS)  # nobody gives orders for it
    return found


def _committer(flow: Flow) -> Committer:
    return Committer(spark=None, arrow_bytes_max=flow.settings.arrow_bytes_max, guard=flow.guard)


def _decide(command: Command, flow: Flow) -> dict[str, Any]:
    """What becomes of refused rows, and how late the next ones are.

    A new value lies in a file: what is in an order's arguments, anybody may read who may see orders.
    """
    name, given = _table(command, flow).name, command.arguments
    if command.kind == "accept_bad_rows":
        return flow.accept_bad(name, command=command.id)
    if command.kind == "revise_mark":
        return flow.revise_mark(name, to=int(given["to_micros"]), command=command.id)
    if command.kind == "discard_refused_rows":
        return flow.discard_refused(name, cause=given.get("cause"), place=None, command=command.id)
    place = str(given["topic"]), int(given["partition"]), int(given["offset"])
    if command.kind == "discard_refused_row":  # a kind of its own: an older owner would take it for all rows
        return flow.discard_refused(name, cause=None, place=place, command=command.id)
    if command.kind == "withdraw_patch":
        return flow.withdraw_patch(name, place, command=command.id)
    file = flow.settings.data / STAGED / str(given["folder"]) / VALUE
    if flow.patched(name, place, command=command.id):  # an owner died since
        _forget(file)
        return {"patched": 1}
    try:
        value = file.read_bytes()
    except FileNotFoundError:
        raise CommandError(f"command {command.id}", "its value is not there any more", "Order it again") from None
    who, why, when = command.requested_by, command.reason, command.requested_at
    patch = Patch(place=place, value=value, by=who, reason=why, command=command.id, at=when)
    try:
        done = flow.patch_refused(name, patch)
    except CommandError:
        _forget(file)
        raise
    _forget(file)
    return done


def _forget(value: Path) -> None:
    """Who gave the order may not live any more to do it."""
    value.unlink(missing_ok=True)
    with suppress(OSError):  # gone, or something else lies there
        value.parent.rmdir()


def _table(command: Command, flow: Flow) -> OwnedTable:
    for table in flow.tables():
        if table.name == command.table_name:
            return table
    raise CommandError(
        f"command {command.id}", f"app {flow.app} has no table {command.table_name}", 'Run "deltaworks table list"'
    )
