"""The supervisor with parts that are small Python programs: each kind of trouble takes a second, not a JVM's start."""

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import processes
from deltaworks.local.part import Part, PartState, Plan, Probe, StackState
from tests.ports import free_ports
from tests.running_stack import wait_until

_SLEEP = "import time; time.sleep(1000)"
_ANSWER = """
    import http.server, sys
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
        def log_message(self, *arguments): pass
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


class Scratch:
    """A supervisor over a plan of programs."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.process: subprocess.Popen[bytes] | None = None
        self._generation = 0

    def program(self, name: str, code: str, *arguments: str, **given: object) -> Part:
        """A part that runs Python code."""
        command = (sys.executable, "-c", textwrap.dedent(code), *arguments)
        values = {"of": name, "folder": self.run, "log": self.run / f"{name}.log", "stop_seconds": 1.0, **given}
        return Part(name=name, command=command, **values)  # type: ignore[arg-type]  # fields by name

    def follow(self, *parts: Part, held: tuple[str, ...] = ()) -> None:
        """Write the plan; start the supervisor or have it read the plan again."""
        self._generation += 1
        Plan(generation=self._generation, parts=parts, held=held).write(self.run)
        if self.process is None:
            command = [sys.executable, "-m", "deltaworks.local.supervisor", str(self.run)]
            with (self.run / "supervisor.log").open("ab") as log:
                self.process = subprocess.Popen(command, stderr=log, start_new_session=True)
        else:
            self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: StackState.read(self.run).generation == self._generation, what="the plan is followed")

    def part(self, name: str) -> PartState:
        """What the supervisor knows of a part."""
        return StackState.read(self.run).parts[name]

    def wait_for(self, name: str, true: Callable[[PartState], bool]) -> PartState:
        """Wait until something is true of a part."""
        wait_until(lambda: true(self.part(name)), what=f"{name}: {self.part(name)}", seconds_max=30)
        return self.part(name)

    def pid(self, name: str) -> int:
        """Pid of a part: its process may be at work before the supervisor has written that down."""
        pid = self.wait_for(name, lambda one: one.pid is not None).pid
        assert pid is not None
        return pid

    def stop(self) -> None:
        """End the supervisor in good order."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=30)


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    """Give a supervisor that has nothing to do yet."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-") as folder:
        supervisor = Scratch(Path(folder))
        try:
            yield supervisor
        finally:
            supervisor.stop()


def test_part_that_ends_is_started_again_after_a_pause_that_doubles(scratch: Scratch) -> None:
    """A part that dies at once does not keep the machine busy: 0.5 s, 1 s, 2 s, ... between two starts."""
    began = "import pathlib, time; pathlib.Path('starts').open('a').write(f'{time.time()}\\n')"

    scratch.follow(scratch.program("short", began))
    scratch.wait_for("short", lambda one: one.restarts == 3 and one.state == "backing-off")

    starts = [float(line) for line in (scratch.run / "starts").read_text().split()]
    pauses = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert len(pauses) == 2
    assert pauses[0] >= 0.5
    assert pauses[1] >= 1.0
    assert scratch.part("short").last_exit == "code 0"


def test_part_without_a_probe_is_ready_when_it_stands(scratch: Scratch) -> None:
    """Nothing can be asked of it: one that lives on is ready, one that dies at once never is."""
    falls = replace(scratch.program("falls", ""), command=("false",))  # at once: an interpreter takes a moment to start
    scratch.follow(scratch.program("stands", "import time; time.sleep(1000)"), falls)
    scratch.wait_for("stands", lambda one: one.state == "ready")
    scratch.wait_for("falls", lambda one: one.restarts == 2)

    assert scratch.part("stands").restarts == 0
    assert scratch.part("falls").ready_seconds is None


def test_death_of_a_part_ends_all_that_it_forked(scratch: Scratch) -> None:
    """Children of a killed part are killed too, even if they ignore SIGTERM or left its process group."""
    family = """
        import os, signal, time
        for stray in range(2):
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                if stray:
                    os.setpgid(0, 0)
                time.sleep(1000)
        open("ready", "w").close()
        time.sleep(1000)
    """
    scratch.follow(scratch.program("family", family))
    wait_until((scratch.run / "ready").exists, what="the family is complete")
    leader = scratch.pid("family")
    members = processes.members(leader)
    assert len(members) == 3

    os.kill(leader, signal.SIGKILL)
    scratch.wait_for("family", lambda one: one.restarts == 1)

    assert [pid for pid in members if processes.started(pid) is not None] == []


def test_detached_process_outlives_the_part_that_started_it(scratch: Scratch) -> None:
    """A Spark driver has a session of its own, and goes on when the Airflow process that launched it is killed."""
    launcher = f"""
        import pathlib, subprocess, sys, time
        driver = subprocess.Popen([sys.executable, "-c", {_SLEEP!r}], start_new_session=True)
        pathlib.Path("driver.new").write_text(str(driver.pid))
        pathlib.Path("driver.new").rename("driver")
        time.sleep(1000)
    """
    scratch.follow(scratch.program("launcher", launcher))
    wait_until((scratch.run / "driver").exists, what="the driver is started")
    driver = int((scratch.run / "driver").read_text())

    os.kill(scratch.pid("launcher"), signal.SIGKILL)
    scratch.wait_for("launcher", lambda one: one.restarts == 1)

    try:
        assert processes.started(driver) is not None
    finally:
        scratch.stop()
        os.kill(driver, signal.SIGKILL)


@pytest.mark.parametrize("victim", ["supervisor", "supervisor and guard"])
def test_killed_supervisor_takes_its_parts_along(scratch: Scratch, victim: str) -> None:
    """After kill -9 of the supervisor nothing of the stack lives on; not even if its guard is killed with it."""
    forking = "import os, time; os.fork(); time.sleep(1000)"
    scratch.follow(scratch.program("one", _SLEEP), scratch.program("two", forking))
    pids = [scratch.wait_for(name, lambda one: one.pid is not None).pid for name in ("one", "two")]
    assert scratch.process is not None
    guard = next(one.pid for one in processes.table() if one.parent == scratch.process.pid and one.pid not in pids)
    wait_until(lambda: len(processes.members(pids[1] or 0)) == 2, what="two has forked")

    if victim == "supervisor and guard":
        os.kill(scratch.process.pid, signal.SIGSTOP)  # it would fork another guard
        os.kill(guard, signal.SIGKILL)
    scratch.process.kill()
    scratch.process.wait()

    sessions = [pid for pid in pids if pid is not None]
    leaders_only = victim != "supervisor"  # without the guard the kernel still ends what we started ourselves
    wait_until(lambda: not _living(sessions, leaders_only=leaders_only), what="all are gone", seconds_max=5)
    for session in sessions:
        processes.kill_session(session)


def test_killed_guard_is_replaced(scratch: Scratch) -> None:
    """The guard is a process like others: when it is killed, the supervisor forks another that knows all parts."""
    scratch.follow(scratch.program("one", _SLEEP))
    session = scratch.wait_for("one", lambda one: one.pid is not None).pid
    assert scratch.process is not None
    supervisor = scratch.process.pid
    guard = next(one.pid for one in processes.table() if one.parent == supervisor and one.pid != session)

    os.kill(guard, signal.SIGKILL)

    def guards() -> list[int]:
        return [one.pid for one in processes.table() if one.parent == supervisor and one.pid not in {session, guard}]

    wait_until(lambda: len(guards()) == 1, what="there is another guard", seconds_max=30)
    assert scratch.part("one").pid == session


def test_part_that_hangs_is_killed_and_started_again(scratch: Scratch) -> None:
    """A stopped process is alive and does nothing: what counts is whether it answers."""
    port = free_ports(1)[0]
    probe = Probe(kind="http", port=port, every_seconds_ready=0.2, seconds_max=2.0)
    scratch.follow(scratch.program("page", _ANSWER, str(port), probe=probe, hung_seconds=4.0))
    hung = scratch.wait_for("page", lambda one: one.state == "ready").pid
    assert hung is not None

    os.kill(hung, signal.SIGSTOP)

    again = scratch.wait_for("page", lambda one: one.state == "ready" and one.pid != hung)
    assert again.restarts == 1
    assert again.last_exit == "SIGKILL"


def test_part_waits_for_those_it_comes_after(scratch: Scratch) -> None:
    """A part starts when the step before it ended well; a step that fails is tried again."""
    fails_once = "import os, sys; sys.exit(0 if os.path.exists('tried') else open('tried', 'w').close() or 1)"
    step = scratch.program("step", fails_once, step=True)

    scratch.follow(step, scratch.program("after", _SLEEP, after=("step",)))
    assert scratch.part("after").state == "waiting"
    scratch.wait_for("after", lambda one: one.pid is not None)

    assert scratch.part("step").state == "done"
    assert scratch.part("step").restarts == 1


def test_parts_stop_in_reverse_order_and_the_stubborn_is_killed(scratch: Scratch) -> None:
    """What others need stops last; what ignores its signal is killed when its time is over."""
    port = free_ports(1)[0]
    notes_its_end = _ANSWER.replace("import http.server", "import atexit, signal, http.server").replace(
        "    class Page",
        "    atexit.register(lambda: open('ends', 'a').write('base '))\n"
        "    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n    class Page",
    )
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('up', 'w'); time.sleep(1000)"
    base = scratch.program("base", notes_its_end, str(port), probe=Probe(kind="http", port=port), stop_seconds=10)
    scratch.follow(base, scratch.program("needs", stubborn, after=("base",)))
    wait_until((scratch.run / "up").exists, what="both are up", seconds_max=30)
    session = scratch.pid("needs")

    scratch.stop()

    assert processes.members(session) == []
    assert (scratch.run / "ends").read_text() == "base "
    log = (scratch.run / "supervisor.log").read_text()
    assert "needs: did not stop within 1 s, killed" in log
    assert {one.state for one in StackState.read(scratch.run).parts.values()} == {"stopped"}


def test_held_part_stays_stopped_until_it_is_released(scratch: Scratch) -> None:
    """Tests of failures keep a part away for as long as they like; the others run on."""
    held, other = scratch.program("held", _SLEEP), scratch.program("other", _SLEEP)
    scratch.follow(held, other)
    pid = scratch.wait_for("other", lambda one: one.pid is not None).pid

    scratch.follow(held, other, held=("held",))
    scratch.wait_for("held", lambda one: one.state == "stopped")
    scratch.follow(held, other)

    scratch.wait_for("held", lambda one: one.pid is not None)
    assert scratch.part("other").pid == pid


def test_who_waits_for_a_held_part_starts_when_it_is_released(scratch: Scratch) -> None:
    """A part that began to wait while the other was away must not go on waiting when that one is back."""
    held = scratch.program("held", _SLEEP)
    scratch.follow(held, held=())
    scratch.wait_for("held", lambda one: one.state == "ready")
    scratch.follow(held, held=("held",))
    scratch.wait_for("held", lambda one: one.state == "stopped")
    waits = scratch.program("waits", _SLEEP, after=("held",))
    scratch.follow(held, waits, held=("held",))
    assert scratch.part("waits").state == "waiting"

    scratch.follow(held, waits)

    scratch.wait_for("waits", lambda one: one.state == "ready")


def _living(sessions: list[int], *, leaders_only: bool) -> list[int]:
    if leaders_only:
        return [pid for pid in sessions if processes.started(pid) is not None]
    return [pid for session in sessions for pid in processes.members(session)]
