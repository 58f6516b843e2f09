"""Orders to the owner of an app's tables, and the record of who gave them, when and why."""

import dataclasses
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from deltaworks.control.apps import Apps, answered_for
from deltaworks.control.database import Shape
from deltaworks.control.payload import payload, storable_text
from deltaworks.errors import CommandError

CommandState = Literal["queued", "running", "done", "failed", "cancelled"]
RECOMPUTE = "recompute"
"""The kind that is worked on beside the stream, in a process of its own, and beside all others."""
BACKFILL = "backfill"
"""What a recomputation is where its arguments do not say `what`: one of a range."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """One order; `epoch` is the owner's that took it."""

    id: int
    app: str
    table_name: str | None
    kind: str
    arguments: dict[str, Any]
    state: CommandState
    epoch: int | None
    progress: dict[str, Any]
    result: dict[str, Any] | None
    error: str | None
    requested_by: str
    reason: str
    requested_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    timeout_seconds: float | None = None
    cancelled_by: str | None = None
    cancel_reason: str | None = None
    cancel_asked_at: datetime | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ("done", "failed", "cancelled")


_COMMAND = Shape(
    Command,
    """commands.id, commands.app, table_name, kind, arguments, state, commands.epoch, progress, result, error,
    requested_by, reason, requested_at, started_at, finished_at, timeout_seconds, cancelled_by, cancel_reason,
    cancel_asked_at""",
)


class Commands(Apps):
    """The queue of each app: taken one at a time, in order but for what lets an app start; and that of recomputations.

    An order of the kind `recompute` takes minutes and needs nothing of the owner meanwhile: it holds no other up.
    """

    def send(
        self, *, app: str, table: str | None, kind: str, arguments: Mapping[str, object], by: str, reason: str,
        timeout_seconds: float | None = None, call: uuid.UUID | None = None,
    ) -> int:  # fmt: skip
        """Queue an order and return its number; `by` and `reason` are its audit and may not be empty.

        `timeout_seconds`: from when its owner takes it; then it is given up between two steps. `call`: sent again under
        the same one, after an answer was lost, it is the same order.
        """
        answered_for(kind, by=by, reason=reason)
        queue = """
            insert into commands (app, table_name, kind, arguments, requested_by, reason, timeout_seconds, call)
            select name, %(table)s, %(kind)s, %(arguments)s, %(by)s, %(reason)s, %(timeout)s, %(call)s
            from apps where name = %(app)s
            on conflict (call) do update set kind = excluded.kind returning {columns}"""
        values: dict[str, object] = {"app": app, "table": table, "kind": kind, "arguments": payload(arguments)}
        # the call's own id: sent again over a new connection, the order is queued once
        values |= {"by": storable_text(by), "reason": storable_text(reason), "call": call or uuid.uuid4()}
        values["timeout"] = timeout_seconds
        sent = self._one(queue, values, _COMMAND)
        if sent is None:
            raise self._unknown(app)
        return sent.id

    def take(self, app: str, *, epoch: int | None = None) -> Command | None:
        """Claim the oldest queued order; None if there is none or one is running.

        Bad rows are accepted first: the app may end before it gets to anything else.

        With `epoch`, only while that epoch's lease is valid (None otherwise), so that a driver which lost the app
        takes nothing; without it, the order is noted under the app's present epoch.
        """
        claim = """
            with owner as (
                select epoch from leases where app = %(app)s
                and (%(epoch)s::bigint is null or epoch = %(epoch)s and until > now())
            ), next as (
                select id from commands where app = %(app)s and (
                    taken_by = %(call)s and state = 'running'
                    or state = 'queued'
                    and id = (
                        select id from commands where app = %(app)s and state = 'queued' and kind <> %(beside)s
                        order by kind <> 'accept_bad_rows', id limit 1)
                    and not exists (
                        select from commands where app = %(app)s and state = 'running' and kind <> %(beside)s))
                for update skip locked
            )
            update commands set state = 'running', started_at = now(), taken_by = %(call)s,
                epoch = (select epoch from owner)
            from next where commands.id = next.id and (%(epoch)s::bigint is null or exists (select from owner))
            returning {columns}"""
        values = {"app": app, "epoch": epoch, "call": uuid.uuid4(), "beside": RECOMPUTE}
        return self._one(claim, values, _COMMAND)

    def take_recomputations(self, app: str, *, epoch: int, many: int, settled_seconds: float = 0.0) -> list[Command]:
        """Claim the oldest queued recomputation; of a range also those of the same table with the same `plan_only`.

        Oldest first, at most so `many`; none if one of the app is running, or `epoch` has no valid lease. None either
        while others of that table come: until none has come for `settled_seconds`, or the oldest has waited for five
        times as long. What is no range is taken alone, at once.
        """
        claim = """
            with owner as (
                select epoch from leases where app = %(app)s and epoch = %(epoch)s and until > now()
            ), waiting as (
                select id, table_name, arguments -> 'plan_only' as plan_only,
                    coalesce(arguments ->> 'what', %(range)s) = %(range)s as is_range,
                    extract(epoch from now() - requested_at) as seconds
                from commands where app = %(app)s and kind = %(beside)s and state = 'queued'
            ), oldest as (
                select one.id, one.table_name, one.plan_only, one.is_range from waiting one where
                    one.id = (select min(id) from waiting) and (
                        not one.is_range or one.seconds >= 5 * %(settled)s or %(settled)s <= (
                            select min(seconds) from waiting where table_name is not distinct from one.table_name))
            ), next as (
                select commands.id from commands left join oldest
                    on oldest.id = commands.id or oldest.is_range
                    and coalesce(commands.arguments ->> 'what', %(range)s) = %(range)s
                    and oldest.table_name is not distinct from commands.table_name
                    and oldest.plan_only is not distinct from commands.arguments -> 'plan_only'
                where app = %(app)s and kind = %(beside)s and (
                    taken_by = %(call)s and state = 'running'
                    or state = 'queued' and oldest.id is not null
                    and not exists (
                        select from commands where app = %(app)s and state = 'running' and kind = %(beside)s))
                order by commands.id limit %(many)s
                for update of commands skip locked
            )
            update commands set state = 'running', started_at = now(), taken_by = %(call)s,
                epoch = (select epoch from owner)
            from next where commands.id = next.id and exists (select from owner)
            returning {columns}"""
        values = {"app": app, "epoch": epoch, "call": uuid.uuid4(), "beside": RECOMPUTE, "many": many}
        values |= {"settled": settled_seconds, "range": BACKFILL}
        return sorted(self._all(claim, values, _COMMAND), key=lambda one: one.id)

    def report(self, number: int, progress: Mapping[str, object], *, epoch: int | None = None) -> Command:
        """Write how far a running order is, and return it, as somebody may have withdrawn it.

        Raises CommandError if it is not running (any more), or not by `epoch`.
        """
        write = """
            update commands set progress = %(progress)s
            where id = %(id)s and state = 'running' and (%(epoch)s::bigint is null or epoch = %(epoch)s)
            returning {columns}"""
        return self._changed(write, number, {"epoch": epoch, "progress": payload(progress)})

    def finish(self, number: int, result: Mapping[str, object], *, epoch: int | None = None) -> None:
        """End a running order well; raises CommandError if it is not running (any more), or not by `epoch`."""
        self._end(number, {"state": "done", "result": payload(result), "error": None, "epoch": epoch})

    def fail(self, number: int, error: str, *, epoch: int | None = None) -> None:
        """End a running order badly; raises CommandError if it is not running (any more), or not by `epoch`."""
        self._end(number, {"state": "failed", "result": None, "error": storable_text(error), "epoch": epoch})

    def cancelled(self, number: int, *, epoch: int | None = None) -> None:
        """End a running order because it was withdrawn; raises CommandError if it is not running, or not by `epoch`."""
        self._end(number, {"state": "cancelled", "result": None, "error": None, "epoch": epoch})

    def cancel(self, number: int, *, by: str, reason: str | None = None) -> Command:
        """Withdraw an order; raises CommandError if it has ended otherwise. Who did so first, and why, stays.

        It is cancelled at once if it is queued or its driver is gone; else its owner ends it after the step that it is
        in.
        """
        write = """
            with found as (
                select id, state in ('queued', 'cancelled') or not exists (
                    select from leases
                    where leases.app = commands.app and leases.epoch = commands.epoch and leases.until > now()) as idle
                from commands where id = %(id)s and state in ('queued', 'cancelled', 'running') for update
            )
            update commands set state = case when idle then 'cancelled' else state end,
                finished_at = case when idle then coalesce(finished_at, now()) else finished_at end,
                cancelled_by = coalesce(cancelled_by, %(by)s), cancel_asked_at = coalesce(cancel_asked_at, now()),
                cancel_reason = case when cancel_asked_at is null then %(reason)s else cancel_reason end
            from found where commands.id = found.id
            returning {columns}"""
        values = {"by": storable_text(by), "reason": None if reason is None else storable_text(reason)}
        return self._changed(write, number, values)

    def requeue_running(self, app: str, epoch: int, *, kind: str | None = None) -> int:
        """Queue again what drivers of epochs before `epoch` left running, and return how many orders that were.

        What was withdrawn meanwhile is cancelled. With `kind` only those of that kind.
        """
        write = """
            update commands set state = case when cancel_asked_at is null then 'queued' else 'cancelled' end,
                finished_at = case when cancel_asked_at is null then null else now() end,
                started_at = null, taken_by = null, epoch = null, progress = '{{}}'
            where app = %(app)s and state = 'running' and coalesce(epoch, 0) < %(epoch)s
            and (%(kind)s::text is null or kind = %(kind)s) returning {columns}"""
        return len(self._all(write, {"app": app, "epoch": epoch, "kind": kind}, _COMMAND))

    def command(self, number: int) -> Command:
        """Return one order; raises CommandError if there is none of this number."""
        found = self._one("select {columns} from commands where id = %(id)s", {"id": number}, _COMMAND)
        if found is None:
            raise CommandError(f"command {number}", "there is none", 'See "deltaworks commands list"')
        return found

    def called(self, call: uuid.UUID) -> Command | None:
        """What was sent, or wished, under this call."""
        return self._one("select {columns} from commands where call = %(call)s", {"call": call}, _COMMAND)

    def commands(
        self, app: str | None = None, state: CommandState | None = None, limit: int = 50, *, table: str | None = None,
        kind: str | None = None, by: str | None = None,
    ) -> list[Command]:  # fmt: skip
        """List orders, newest first; None of what they are chosen by leaves it open."""
        query = """
            select {columns} from commands where (%(app)s::text is null or app = %(app)s)
            and (%(state)s::text is null or state = %(state)s) and (%(table)s::text is null or table_name = %(table)s)
            and (%(kind)s::text is null or kind = %(kind)s) and (%(by)s::text is null or requested_by = %(by)s)
            order by id desc limit %(limit)s"""
        chosen = {"app": app, "state": state, "table": table, "kind": kind, "by": by, "limit": limit}
        return self._all(query, chosen, _COMMAND)

    def _end(self, number: int, values: Mapping[str, object]) -> None:
        """Write the end of a running order; the same end again is no change (its first answer was lost)."""
        write = """
            update commands set state = %(state)s, result = %(result)s, error = %(error)s,
                finished_at = coalesce(finished_at, now())
            where id = %(id)s and (%(epoch)s::bigint is null or epoch = %(epoch)s) and (
                state = 'running' or state = %(state)s
                and result is not distinct from %(result)s::jsonb and error is not distinct from %(error)s::text)
            returning {columns}"""
        self._changed(write, number, values)

    def _changed(self, write: str, number: int, values: Mapping[str, object]) -> Command:
        changed = self._one(write, {"id": number, **values}, _COMMAND)
        if changed is not None:
            return changed
        now = self.command(number)
        taken = "" if now.epoch is None else f" by epoch {now.epoch}"
        raise CommandError(f"command {number}", f"is {now.state}{taken}", f'See "deltaworks commands show {number}"')
