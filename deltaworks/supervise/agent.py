"""The agent on the host where the lake is: starts, adopts and ends drivers for Airflow elsewhere, has suites judged.

Started by `python -m deltaworks.supervise.agent`. It takes requests from the control store, does them with `launch.py`,
and tells every second how each app's driver is. It decides nothing: who is to run, and when again, Airflow says.
SIGTERM: the apps drain, as at "deltaworks down", and the agent's next start wants them running again.
"""

import fcntl
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from deltaworks.control import LaunchRequest, Store
from deltaworks.errors import ControlError, DeltaworksError, StackError
from deltaworks.local.private import open_log, private_folder
from deltaworks.settings import Settings
from deltaworks.supervise import launch
from deltaworks.supervise.judging import JUDGE_SECONDS_MAX, Judging, Wanted
from deltaworks.supervise.launcher import kill_this
from deltaworks.supervise.launches import last_launch

POLL_SECONDS = 0.25  # how long a supervisor waits, at most, until its request is taken
TELL_SECONDS = 1.0
DRAIN_SECONDS_MAX = 30.0
BEAT = "agent.beat"
"""Below the data folder's `run`: written each time that all was told; a health check looks at its age."""
_FORGET_SECONDS = 3600.0
_OUTCOME_MAX = 500_000  # characters, of what the control store takes
_LOST = -9  # exit code of an owner whose agent ended: the container's end is a SIGKILL for all in it


class Agent:
    """One host's agent."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._owners: dict[int, subprocess.Popen[bytes]] = {}
        self._judgings: dict[int, tuple[Judging, float]] = {}
        self._told_at = self._forgot_at = float("-inf")
        self._blind = False
        self._call = uuid.uuid4()

    def begin(self) -> None:
        """Want the apps running that the end of an earlier agent stopped; owners of its are lost."""
        self._store.forget_requests(lost_owners=_LOST)
        for app in launch.resume_all(self._settings, by="driver host"):
            _say(f"{app} is wanted running again")

    def serve(self, stopping: threading.Event) -> None:
        """Work until told to stop; a control store that is away is waited for."""
        begun = False
        while not stopping.wait(POLL_SECONDS):
            try:
                if not begun:
                    self.begin()
                    begun = True
                self.step()
            except ControlError as error:
                if not self._blind:
                    _say(f"{error} Waiting for it.")
                self._blind = True
            else:
                self._blind = False

    def step(self) -> None:
        """Do what was asked for, then tell how the drivers are if it is time. Raises ControlError."""
        while (request := self._take()) is not None:
            self._do(request)
        self._ended_owners()
        self._ended_judgings()
        now = time.monotonic()
        if now - self._told_at >= TELL_SECONDS:
            for app in self._store.apps():
                self._tell(app.name)
            private_folder(self._settings.run)
            (self._settings.run / BEAT).touch()
            self._told_at = now
        if now - self._forgot_at >= _FORGET_SECONDS:
            self._store.forget_requests()
            self._forgot_at = now

    def _take(self) -> LaunchRequest | None:
        """The next request; the same one again where its answer was lost on the way."""
        request = self._store.take_request(call=self._call)
        self._call = uuid.uuid4()
        return request

    def _do(self, request: LaunchRequest) -> None:
        """Do one request and answer it; what went wrong is an answer too, unless the control store is away."""
        try:
            answer = self._done(request)
        except ControlError:
            raise
        except DeltaworksError as error:
            wrong = {"place": error.place, "finding": error.finding, "next_step": error.next_step}
        except OSError as error:  # no memory, no process left, no Python
            finding = f"cannot be done ({error.strerror})"
            wrong = {"place": f"app {request.app} {request.kind}", "finding": finding, "next_step": "See this host"}
        else:
            if request.kind != "log":
                _say(f"{request.app} {request.kind}: {answer}")
            self._tell(request.app)  # before the answer: who has it looks at once
            self._store.answer_request(request.id, answer=answer)
            return
        _say(f"{request.app} {request.kind}: {wrong['place']}: {wrong['finding']}")
        self._store.answer_request(request.id, error=wrong)

    def _done(self, request: LaunchRequest) -> dict[str, Any]:
        given = request.arguments
        if request.kind == "kill":
            driver = (int(given["pid"]), str(given["process_started"]))
            return {"killed": kill_this(self._settings, self._store, request.app, driver)}
        if request.kind == "log":
            return {"text": launch.log_tail(self._settings, request.app, upto=given["upto"])}
        if request.kind == "owner":
            owner = launch.start_owner(self._settings, self._store.command(int(given["command"])))
            self._owners[request.id] = owner
            return {"pid": owner.pid}
        if request.kind == "judge":
            judging = Judging(self._settings, Wanted.of(given))
            self._judgings[request.id] = (judging, time.monotonic())
            return {"pid": judging.process.pid}
        return asdict(launch.start(self._settings, request.app, drain=request.kind == "drain"))

    def _ended_owners(self) -> None:
        for number, owner in list(self._owners.items()):
            if (code := owner.poll()) is not None:
                self._store.answer_request(number, answer={"code": code})
                del self._owners[number]

    def _ended_judgings(self) -> None:
        for number, (judging, began) in list(self._judgings.items()):
            if time.monotonic() - began > JUDGE_SECONDS_MAX:
                judging.end()
            if (said := judging.poll()) is not None:
                code = judging.process.returncode
                outcome = said.outcome if len(said.outcome) <= _OUTCOME_MAX else ""
                self._store.answer_request(number, answer={"code": code, "outcome": outcome, "errors": said.errors})
                del self._judgings[number]

    def _tell(self, app: str) -> None:
        lease, last = self._store.lease(app), last_launch(self._settings, app)
        found, left = launch.living(self._settings, app, lease), launch.lingering(lease)
        self._store.tell_driver(
            app,
            host=socket.gethostname(),
            running=None if found is None else (found.pid, found.process_started),
            lingering=None if left is None else (left.pid, left.process_started),
            launch=None if last is None else asdict(last),
            log_bytes=launch.log_size(self._settings, app),
        )


def main() -> int:
    """Run the agent in this process; 3 after an error that a person has to mend."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        settings = Settings.load()
        with _alone(settings), Store(settings.control_dsn(), application="deltaworks agent") as store:
            _say(f"the agent of {socket.gethostname()} begins")
            Agent(settings, store).serve(stopping)
        became = launch.stop_all(settings, seconds_max=DRAIN_SECONDS_MAX)
    except DeltaworksError as error:
        _say(str(error))
        return 3
    _say("; ".join(f"{app} {how}" for app, how in sorted(became.items())) or "no driver ran")
    return 0


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """One agent for a lake: to another one the drivers of the first would look dead."""
    private_folder(settings.run)
    with open_log(settings.run / "agent.lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StackError(
                "driver host", "another agent works on this lake", "Let that one work, or stop it"
            ) from None
        yield


def _say(text: str) -> None:
    sys.stdout.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
