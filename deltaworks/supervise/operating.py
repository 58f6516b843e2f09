"""An operation on an app, looked at once a second until it has ended: wishes for the app, orders to its owner.

No Airflow in here. Each wish and order has a call of its own, by which another process that looks goes on with it.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from deltaworks.control import Command, Store
from deltaworks.errors import CommandError, StackError
from deltaworks.operations import CANCEL, OF_APP, Order
from deltaworks.settings import Settings
from deltaworks.supervise import launch
from deltaworks.supervise.command import store_of
from deltaworks.supervise.judge import NOT_WELL, Seen, Verdict
from deltaworks.supervise.launcher import Owner, launcher_of, running
from deltaworks.supervise.watch import judged

START_SECONDS_MAX = 300.0
"""So long an app may take until it is well; Spark needs ten seconds on a machine that is not busy."""
STOP_SECONDS_MAX = 600.0
"""So long a driver may take to leave: one that hangs is killed by who supervises it."""
LONELY_SECONDS_MAX = 3600.0
"""For so long an app may be without a driver that is wanted; then what is queued is withdrawn."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How it ended: what came of it, and what went wrong, a line each."""

    result: Mapping[str, Any]
    failed: Sequence[str] = field(default=())


Look = Callable[[float], Done | str]
"""One look, after so many seconds: how far it is, or how it ended. Raises DeltaworksError for what may pass."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Who wants something of an app, why, and what tells this call from another one of the same."""

    app: str
    by: str
    reason: str
    call: str

    def id(self, step: object) -> uuid.UUID:
        """Of a step: the same for whoever looks."""
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self.call} {step}")


def operating(
    settings: Settings, *, app: str, operation: str, by: str, reason: str, orders: Sequence[Order],
    command: int | None, call: str,
) -> Look:  # fmt: skip
    """What is to be looked at for an operation; nothing is ordered before the first look.

    Raises ControlError while the control store is away.
    """
    store, asked = store_of(settings.control_dsn()), Asked(app=app, by=by, reason=reason, call=call)
    store.declare_apps([app])
    act: _Cancel | _Wishes | _Orders
    if operation == CANCEL:
        act = _Cancel(store, asked, number=command or 0)
    elif operation in OF_APP:
        act = _Wishes(settings, store, asked, operation=operation)
    else:
        act = _Orders(settings, store, asked, orders=orders)

    def look(waited: float) -> Done | str:
        try:
            return act.look(waited)
        except (CommandError, StackError, OSError) as error:  # these do not pass by themselves
            return Done(result={}, failed=[str(error)])

    return look


class _Wishes:
    """An app is to stop, to run, or both; for `drain` a driver takes what is there before it is stopped for good."""

    def __init__(self, settings: Settings, store: Store, asked: Asked, *, operation: str) -> None:
        self._settings, self._store, self._asked, self._operation = settings, store, asked, operation
        by_name: Mapping[str, Sequence[Look]] = {
            "start": [self._started], "stop": [self._stopped], "restart": [self._stopped, self._started],
            "drain": [self._stopped, self._drained],
        }  # fmt: skip
        self._steps = by_name[operation]
        self._wished = False
        self._since = 0.0
        self._before = 0  # the epoch before the drain

    def look(self, waited: float) -> Done | str:
        if not self._wished and len(self._steps) > 1 and self._store.called(self._asked.id("running")):
            self._steps = self._steps[1:]  # that is where it was
        found = self._steps[0](waited - self._since)
        if isinstance(found, Done) and not found.failed and len(self._steps) > 1:
            self._steps, self._wished, self._since = self._steps[1:], False, waited
            return str(found.result["reason"])
        return found

    def _started(self, waited: float) -> Done | str:
        asked = self._asked
        if not self._wished:
            self._store.desire(asked.app, "running", by=asked.by, reason=asked.reason, call=asked.id("running"))
            self._wished = True
            return f"{asked.app} is wanted running"
        _, verdict = judged(self._settings, self._store, asked.app)
        if verdict.state not in (*NOT_WELL, "starting", "stopped", "draining"):
            return _told_of(verdict)
        return self._late(verdict) if waited > START_SECONDS_MAX else f"{verdict.state}: {verdict.reason}"

    def _stopped(self, waited: float) -> Done | str:
        asked, kind = self._asked, "stop" if self._operation == "restart" else self._operation
        if not self._wished:
            call = asked.id("stopped")
            self._store.desire(asked.app, "stopped", by=asked.by, reason=asked.reason, kind=kind, call=call)
            self._wished = True
        seen, verdict = judged(self._settings, self._store, asked.app)
        if seen.app.desired == "running":
            return _overruled(seen)
        if seen.driver is None:
            return _told_of(verdict)
        # one that drains may take hours, and is whom another process, that has begun to look, finds here
        too_long = waited > STOP_SECONDS_MAX and self._operation != "drain"
        return self._late(verdict) if too_long else f"{verdict.state}: {verdict.reason}"

    def _drained(self, _: float) -> Done | str:
        app = self._asked.app
        seen, verdict = judged(self._settings, self._store, app)
        if seen.app.desired == "running":  # its stream takes what is there
            return _overruled(seen)
        if not self._wished:
            self._before = seen.lease.epoch if seen.lease else 0
            if launcher_of(self._settings, self._store).start(app, drain=True).adopted:
                return "somebody else works on its tables"
            self._wished = True
            return "a driver starts, to take what is there"
        beat = seen.heartbeat if seen.heartbeat and seen.heartbeat.epoch > self._before else None
        rows = beat.progress.get("rows") if beat else None
        if seen.driver is not None:
            return f"takes what is there: {rows or 0} rows so far"
        if beat is None or beat.state != "stopped":
            error = beat.progress.get("error") if beat else f"its driver ended at once: see the log of app {app}"
            return Done(result={}, failed=[f"what is there was not taken: {error or verdict.reason}"])
        return Done(result={"state": verdict.state, "reason": verdict.reason, "rows": rows})

    def _late(self, verdict: Verdict) -> Done:
        told = f"{self._asked.app} is {verdict.state} still: {verdict.reason}. What was wanted is wanted further on"
        return Done(result={"state": verdict.state, "reason": verdict.reason}, failed=[told])


class _Cancel:
    """An order about the app is withdrawn."""

    def __init__(self, store: Store, asked: Asked, *, number: int) -> None:
        self._store, self._asked, self._number = store, asked, number

    def look(self, _: float) -> Done | str:
        asked = self._asked
        if (app := self._store.command(self._number).app) != asked.app:
            raise CommandError(f"command {self._number}", f"is one of app {app}", f"Cancel it by operate__{app}")
        found = self._store.cancel(self._number, by=asked.by, reason=asked.reason)
        if not found.finished:
            return f"command {found.id} ends after the step that it is in"
        return Done(result={"command": found.id, "state": found.state})


class _Orders:
    """Orders to the owner of an app; one that is stopped gets an owner for them."""

    def __init__(self, settings: Settings, store: Store, asked: Asked, *, orders: Sequence[Order]) -> None:
        self._settings, self._store, self._asked, self._orders = settings, store, asked, orders
        self._numbers: list[int] = []
        self._owner: Owner | None = None
        self._launcher = launcher_of(settings, store)
        self._lonely_since: float | None = None

    def look(self, waited: float) -> Done | str:
        self._send()
        found = [self._store.command(number) for number in self._numbers]
        left = [one for one in found if not one.finished]
        if not left:
            return _outcome(found)
        if (why := self._see_to_an_owner(left[-1], waited)) is not None:
            self._withdraw(left, why)
            return _outcome([self._store.command(number) for number in self._numbers], left_over=why)
        told = [f"{_name(one)} is {one.state}{_told(one)}" for one in left if one.state == "running"]
        if len(found) > 1:
            return "; ".join([f"{len(found) - len(left)} of {len(found)} done", *told])
        return told[0] if told else f"{_name(left[0])} is queued"

    def _send(self) -> None:
        """Each order once, whoever looks: the same call gives the same order."""
        asked = self._asked
        for at in range(len(self._numbers), len(self._orders)):
            one = self._orders[at]
            self._numbers.append(
                self._store.send(
                    app=asked.app, table=one.table, kind=one.kind, arguments=one.arguments, by=asked.by,
                    reason=asked.reason, call=asked.id(at),
                )
            )  # fmt: skip

    def _see_to_an_owner(self, last: Command, waited: float) -> str | None:
        """Start an owner up to this order where the app is stopped; why nobody will take it, if that is so."""
        app = self._asked.app
        if running(self._launcher, self._store, app) is not None:
            self._lonely_since = None
            return None
        code = None if self._owner is None else self._owner.poll()
        if code not in (None, 0, launch.NOT_OWNER):
            return f"its owner ended with code {code}: see the log of app {app}"
        if code is not None:
            self._owner = None
        if self._owner is None and self._store.app(app).desired == "stopped":
            try:
                self._owner = self._launcher.start_owner(last)
            except OSError as error:  # no memory, no process left, no Python
                return f"an owner cannot be started ({error.strerror})"
            except StackError as error:  # the same, on the host where the lake is
                return f"an owner cannot be started ({error.finding})"
        self._lonely_since = waited if self._lonely_since is None else self._lonely_since
        if waited - self._lonely_since > LONELY_SECONDS_MAX:
            return f"app {app} had no driver for {LONELY_SECONDS_MAX:.0f} s"
        return None

    def _withdraw(self, left: Sequence[Command], why: str) -> None:
        """What fails here is not to be done when the app is started, some other day."""
        for one in left:
            with suppress(CommandError):  # it has just ended
                self._store.cancel(one.id, by=self._asked.by, reason=why)


def _overruled(seen: Seen) -> Done:
    """Somebody wants it running, and has said so since."""
    return Done(result={}, failed=[f"{seen.app.desired_by} wants it running meanwhile"])


def _told_of(verdict: Verdict) -> Done:
    return Done(result={"state": verdict.state, "reason": verdict.reason})


def _outcome(found: Sequence[Command], *, left_over: str = "") -> Done:
    failed = [f"{_name(one)} {_ending(one) or left_over}" for one in found if one.state != "done"]
    told = [{"command": one.id, "table": one.table_name, "state": one.state, "result": one.result} for one in found]
    return Done(result={"commands": told}, failed=failed)


def _ending(one: Command) -> str:
    if one.state == "failed":
        return f"failed: {one.error}"
    if one.state == "cancelled":
        return f"was cancelled by {one.cancelled_by}: {one.cancel_reason or 'no reason given'}"
    return ""


def _name(one: Command) -> str:
    return f"command {one.id} ({one.arguments.get('what') or one.kind} {one.table_name})"


def _told(one: Command) -> str:
    return f": {json.dumps(one.progress)}" if one.progress else ""
