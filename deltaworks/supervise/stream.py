"""The task that keeps an app running: a deferred one, so that it costs no worker while the app runs.

It starts or adopts the app's driver, then waits in the triggerer until something has to be done. A driver that is
wanted, and the next one after a death, is started there at once: a worker takes seconds to begin. Stopping is a wish in
the control store, not an action on the task: marking it failed or clearing it leaves the driver alone, and the next
try adopts it. docs/decisions/0002 says why.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from airflow.sdk import BaseOperator, Context, ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from deltaworks.control import Store
from deltaworks.errors import ControlError, DeltaworksError
from deltaworks.settings import Settings
from deltaworks.supervise.backoff import FAILURES_MAX, wait_seconds
from deltaworks.supervise.judge import Seen, Verdict
from deltaworks.supervise.launcher import launcher_of, running
from deltaworks.supervise.watch import Eyes, look

POLL_SECONDS = 1.0
# a trigger that fires before the scheduler has seen the deferring process end fails the task (apache/airflow 66374)
QUIET_SECONDS = 10.0
STEADY_LOOKS = 3  # a change of state is told when it has lasted so many looks: batches flicker
TOLD_SECONDS = 600.0  # the numbers are told so often even if nothing changes
_NOT_THE_DRIVER = RetryRule(
    exception=DeltaworksError,
    action=RetryAction.RETRY,
    retry_delay=timedelta(seconds=30),
    reason="something around the driver is wrong: a setting, a secret, a process that cannot be killed",
)


class StreamOperator(BaseOperator):
    """Keeps the driver of one app running for as long as that is wanted.

    A driver that dies fails the try; another starts at once after a good life, later the more of them failed early in a
    row. After FAILURES_MAX of those the run fails too; attempts go on in the next runs.
    """

    ui_color = "#dff3e8"

    def __init__(self, *, app: str, project: Path, **kwargs: Any) -> None:
        # For ever: the task ends only with its DAG. The pause after a death is backoff.py's, so that a day of health is
        # not followed by the long pause that Airflow's own back-off, which counts all tries, would have reached.
        super().__init__(
            retries=1_000_000,
            retry_delay=timedelta(seconds=1),
            retry_policy=ExceptionRetryPolicy([_NOT_THE_DRIVER]),
            **kwargs,
        )
        self.app, self.project = app, str(project)

    def execute(self, context: Context) -> None:  # noqa: ARG002  # Airflow's signature
        """Start or adopt the driver if it is wanted, then wait."""
        settings = Settings.load(Path(self.project))
        not_before = 0.0
        try:
            not_before = ensure_driver(settings, self.app, self.log)
        except ControlError as error:
            self.log.warning("%s Waiting for it.", error)
        self._wait(not_before)

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """Do what the trigger found necessary."""
        settings = Settings.load(Path(self.project))
        self.log.info("%s: %s.", event["state"], event["reason"])
        if event["needs"] == "start":
            self.execute(context)
        if event["needs"] == "kill":
            with Store(settings.control_dsn()) as store:
                found = look(settings, store, self.app).driver
                if found is not None and (found.pid, found.process_started) == tuple(event["driver"] or ()):
                    killed = launcher_of(settings, store).kill(self.app, found)
                    self.log.info("Killed %d processes.", killed)
        self._bury(settings, event)

    def _wait(self, not_before: float) -> NoReturn:
        trigger = StreamTrigger(app=self.app, project=self.project, deferred_at=time.time(), not_before=not_before)
        self.defer(trigger=trigger, method_name="resume")

    def _bury(self, settings: Settings, event: dict[str, Any]) -> NoReturn:
        """Fail the try, or the run if it is one early end too many, with the end of the driver's log."""
        failures = event.get("failures", 0)
        with suppress(ControlError), Store(settings.control_dsn()) as store:
            launcher = launcher_of(settings, store)
            if tail := launcher.log(self.app, upto=event.get("logged")):
                self.log.error("The end of the log of app-%s:\n%s", self.app, tail)
            if "failures" not in event:
                failures = launcher.past(self.app).failures
        finding = f"driver of {self.app} {event['state']}: {event['reason']}"
        if failures >= FAILURES_MAX:
            pause = wait_seconds(failures)
            raise AirflowFailException(
                f"{finding}. {failures} in a row ended early; the next attempt comes in {pause:.0f} s, "
                f'or at once after "deltaworks app restart {self.app}".'
            )
        raise AirflowException(finding)


def ensure_driver(settings: Settings, app: str, log: Any) -> float:
    """Start or adopt the driver of an app if it is wanted.

    Returns when the next attempt may be made (seconds since 1970), 0 if at any time. Raises ControlError, StackError,
    and OSError where there is no Python for it.
    """
    with Store(settings.control_dsn()) as store:
        store.declare_apps([app])
        wish, launcher = store.app(app), launcher_of(settings, store)
        before = launcher.past(app)
        found = running(launcher, store, app)  # afterwards: who was started meanwhile has not failed
        if found is None and wish.desired == "stopped":
            log.info("Stopped, as %s wants. Start it with: deltaworks app start %s", wish.desired_by, app)
            return 0.0
        not_before = before.ended_at + wait_seconds(before.failures)
        if found is None and not_before > time.time():
            told = "%d drivers in a row ended early; the next one starts in %.0f s. The end of the last one's log:\n%s"
            log.warning(told, before.failures, not_before - time.time(), launcher.log(app))
            return not_before
        started = found or launcher.start(app)
    what = "Adopted the running driver" if started.adopted else "Started a driver"
    log.info("%s: pid %d; deltaworks logs app-%s", what, started.pid, app)
    return 0.0


class StreamTrigger(BaseTrigger):
    """Looks at an app every second, logs how it changes, starts drivers, and fires once when something has to be done.

    Never fails for what it cannot see: while the control store is away it keeps waiting. Never stops the driver.
    """

    def __init__(self, *, app: str, project: str, deferred_at: float, not_before: float = 0.0) -> None:
        BaseTrigger.__init__(self)
        self.app, self.project, self.deferred_at, self.not_before = app, project, deferred_at, not_before

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where this class is and what it is made of."""
        kwargs = {"app": self.app, "project": self.project}
        times = {"deferred_at": self.deferred_at, "not_before": self.not_before}
        return ("deltaworks.supervise.stream.StreamTrigger", kwargs | times)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait until something has to be done."""
        telling = _Telling(self)
        eyes: Eyes | None = None
        try:
            while True:
                await asyncio.sleep(POLL_SECONDS)
                try:
                    if eyes is None:
                        eyes = await asyncio.to_thread(Eyes, self.app, Path(self.project))
                    seen, verdict = await asyncio.to_thread(eyes.look)
                except DeltaworksError as error:
                    telling.blind(error)
                    continue
                verdict = self._patient(seen, verdict)
                telling.tell(seen, verdict)
                quiet = self._quiet_seconds()
                # a death that cannot be told yet has no successor yet: it would not be told any more
                if verdict.needs is None or (quiet and verdict.needs != "start"):
                    continue
                event = await asyncio.to_thread(self._start_next, eyes.settings, seen, verdict)
                if event is not None:
                    await asyncio.sleep(self._quiet_seconds())
                    yield TriggerEvent(event)
                    return
        finally:
            if eyes:
                eyes.close()

    async def on_kill(self) -> None:
        """Somebody marked or cleared the task, or Airflow moved the trigger: none of these is a wish to stop the app.

        The driver works on and the next try adopts it. If `stopped` is wanted, it drains by itself.
        """
        self.log.info("The driver of %s is left alone. To stop it: deltaworks app stop %s", self.app, self.app)

    def _quiet_seconds(self) -> float:
        """For so long nothing may be fired yet; the clock may have been set back."""
        passed = time.time() - self.deferred_at
        return QUIET_SECONDS - passed if 0 <= passed < QUIET_SECONDS else 0.0

    def _start_next(self, settings: Settings, seen: Seen, verdict: Verdict) -> dict[str, Any] | None:
        """Start the driver that is wanted, or the next one after a death where no pause is due.

        Returns what the task has to do or to tell; None while there is nothing. What cannot be started here the task
        tries to start: then its try fails with the reason.
        """
        event = _event(seen, verdict)
        try:
            if verdict.needs == "start":
                self.not_before = ensure_driver(settings, self.app, self.log)
                return None
            if verdict.needs == "burial":
                with Store(settings.control_dsn()) as store:
                    launcher = launcher_of(settings, store)
                    failures = launcher.past(self.app).failures
                    if running(launcher, store, self.app) is not None:
                        return None  # somebody has started the next one meanwhile
                    # what is known of a death only as long as no other driver has started
                    event |= {"failures": failures, "logged": launcher.log_bytes(self.app)}
                if wait_seconds(failures) == 0:
                    ensure_driver(settings, self.app, self.log)
        except ControlError as error:
            self.log.warning("%s Watching on.", error)
            return None
        except (DeltaworksError, OSError) as error:
            self.log.warning("%s", error)
        return event

    def _patient(self, seen: Seen, verdict: Verdict) -> Verdict:
        """Hold a death that was told before the pause until that is over; then it takes a start, no other funeral."""
        told = seen.launched_at is None or seen.launched_at.timestamp() < self.not_before
        if verdict.needs != "burial" or not self.not_before or not told:
            return verdict
        pause = self.not_before - time.time()
        if pause > 0:
            return Verdict(state="failed", reason=f"{verdict.reason}; next attempt at {_clock(self.not_before)}")
        return Verdict(state=verdict.state, reason="the pause is over", needs="start")


class _Telling:
    """Writes to the task's log what has changed, and no more."""

    def __init__(self, trigger: StreamTrigger) -> None:
        self._log, self._app = trigger.log, trigger.app
        self._told: str | None = None
        self._told_at = 0.0
        self._same, self._last = 0, ""
        self._blind = False

    def tell(self, seen: Seen, verdict: Verdict) -> None:
        """Log a state that is new and lasts, or the numbers of an old one from time to time."""
        if self._blind:
            self._log.info("%s: the control store is back.", self._app)
            self._blind = False
        self._same = self._same + 1 if verdict.state == self._last else 1
        self._last = verdict.state
        new = verdict.state != self._told and (self._same >= STEADY_LOOKS or verdict.needs is not None)
        if new or time.monotonic() - self._told_at > TOLD_SECONDS:
            epoch = seen.lease.epoch if seen.lease else 0
            self._log.info("%s is %s: %s (epoch %d).", self._app, verdict.state, verdict.reason, epoch)
            self._told, self._told_at = verdict.state, time.monotonic()

    def blind(self, error: DeltaworksError) -> None:
        """Log once that nothing can be seen."""
        if not self._blind:
            self._log.warning("%s: %s Watching on.", self._app, error)
        self._blind = True


def _event(seen: Seen, verdict: Verdict) -> dict[str, Any]:
    driver = [seen.driver.pid, seen.driver.process_started] if seen.driver else None
    return {"needs": verdict.needs, "state": verdict.state, "reason": verdict.reason, "driver": driver}


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%SZ", time.gmtime(seconds))
