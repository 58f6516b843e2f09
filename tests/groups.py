"""Run lint and tests in groups, each with the right Python, and say how every group ended. What bin/test does.

With `--set-up PYTHON` what set-up has not made yet is made by that Python meanwhile: who reads code needs no jars.
"""

import argparse
import dataclasses
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import SystemRandom
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / ".venv/tools/bin"
PYTHONS = {name: ROOT / f".venv/{name}/bin/python" for name in ("spark", "airflow", "terraform")}
AIRFLOW_FOLDERS = ("deltaworks/supervise", "dags", "tests/unit/airflow")  # everything else is run by the other Python
NAMES = ("lint", "tidy", "unit", "spark", "stack", "chaos")
APART = ("terraform",)
"""Groups that run only where they are asked for, in an environment of their own: see the Makefile."""
READERS = ("lint", "tidy")
"""Groups that only read the code and import it: they go on while jars are fetched, which is mostly waiting."""
SPREAD = ("--dist", "loadfile", "--no-loadscope-reorder")
"""Processes take files, each with a JVM and a stack of its own where tests need them."""
PROCESSES = 2
MORE = {"stack": 3, "unit": 4, "spark": 3}
"""Processes of a group whose tests wait now and then, for a disk, a process or a job's end..."""
ROOM_BYTES_MIN = 16 * 10**9
"""...on a machine with so much memory: each has a stack with drivers."""
ALONE = ("chaos", "unit/airflow", "terraform")  # what is timed, is short, or applies one environment once
GROUP_SECONDS_MAX = 3600  # a test that hangs must not hang CI; shared machines are at times half as fast as at others
STOP_SECONDS_MAX = 60  # a stack drains its drivers
UNWANTED = ("PYTHONDONTWRITEBYTECODE",)
"""Taken out of the environment: some hundred processes would each compile all that they import."""
SAME_AS_DRIVERS = {"TOKIO_WORKER_THREADS": "1"}
"""What a driver's environment has by itself; for tests that write tables in their own process."""
JAVA = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC")
"""For every Java that tests start: few live for more than a minute, in which the second compiler takes as much time as
all the rest. With one compiler Java reserves 48 MiB for its code; see engine/session.py."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """How a group ended."""

    group: str
    verdict: str  # passed, FAILED, or no tests yet
    seconds: float
    cores: float | None = None
    """So many of the machine's cores were busy meanwhile, with whatever; None where nobody can tell."""


def main(arguments: list[str]) -> int:
    """Run the groups asked for (all of them if none is named); 1 if any failed."""
    parser = argparse.ArgumentParser(prog="bin/test", description="Lint and tests in groups.")
    parser.add_argument(
        "groups", nargs="*", metavar="group", help=f"of {', '.join(NAMES)} (default: all), {', '.join(APART)}"
    )
    parser.add_argument("--seed", type=_seed, help="what tests draw follows from it; random, or the commit's (default)")
    parser.add_argument("--ordinary", action="store_true", help="compute without direct plans")
    parser.add_argument("--whole", action="store_true", help="also the tests whose turn it is not")
    parser.add_argument("--set-up", metavar="PYTHON", help="finish set-up by this Python, beside what needs no jars")
    given = parser.parse_args(arguments)
    options = tuple(f"--{name}" for name in ("ordinary", "whole") if vars(given)[name])
    options += () if given.seed is None else (f"--seed={given.seed}",)
    asked = given.groups or NAMES
    wrong = sorted(set(asked) - {*NAMES, *APART})
    if wrong:
        parser.error(f"unknown group {wrong[0]}: known are {', '.join((*NAMES, *APART))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what runs is stopped then, as after ^C
    results = []
    by = shlex.split(given.set_up or "")
    with _running([*by, str(ROOT / "bin/setup")], java=()) if by else nullcontext() as set_up:
        for name in (name for name in (*NAMES, *APART) if name in asked):
            if name not in READERS and set_up is not None and (code := _code(set_up)):
                return code  # it has said why
            results += _group(name, options)
        if set_up is not None and (code := _code(set_up)):
            return code
    print(f"\n{'=' * 20} groups")
    for result in results:
        busy = "" if result.cores is None else f"{result.cores:7.2f} cores busy"
        print(f"{result.group:<14} {result.verdict:<14} {result.seconds:7.1f} s {busy}")
    failed = sum(result.verdict == "FAILED" for result in results)
    passed = sum(result.verdict == "passed" for result in results)
    print(f"groups: {passed} passed, {failed} failed")
    return 1 if failed else 0


def _seed(text: str) -> int:
    return SystemRandom().randrange(2**32) if text == "random" else int(text)


def _group(name: str, options: Sequence[str]) -> list[Result]:
    if name == "lint":
        return [_lint()]
    folder = f"tests/{name}"
    if not (ROOT / folder / "airflow").is_dir():
        return [_pytest(name, name if name in APART else "spark", folder, options)]
    # those wait more than they compute: beside the others, with what they say behind
    with _beside(f"{name}/airflow", "airflow", f"{folder}/airflow", options) as ended:
        return [_pytest(name, "spark", folder, options), ended()]


def _pytest(group: str, environment: str, folder: str, options: Sequence[str]) -> Result:
    """Run one folder's tests; a folder with test files that yields no test has failed."""
    print(f"\n{'=' * 20} {group}", flush=True)
    began, busy = time.monotonic(), _busy_seconds()
    command = _command(group, environment, folder, options)
    if command is None:
        return Result(group=group, verdict="FAILED", seconds=0)
    with _running(command) as process:
        code = _code(process)
    seconds, spent = time.monotonic() - began, _busy_seconds()
    cores = None if busy is None or spent is None else (spent - busy) / seconds
    return Result(group=group, verdict="FAILED" if code else "passed", seconds=seconds, cores=cores)


@contextmanager
def _beside(group: str, environment: str, folder: str, options: Sequence[str]) -> Iterator[Callable[[], Result]]:
    """The same beside what is done meanwhile; gives what waits for its end. What it said is printed at the end."""
    began, command = time.monotonic(), _command(group, environment, folder, options)
    if command is None:
        yield lambda: Result(group=group, verdict="FAILED", seconds=0)
        return

    def waited(process: subprocess.Popen[bytes]) -> Result:
        code = _code(process)
        return Result(group=group, verdict="FAILED" if code else "passed", seconds=time.monotonic() - began)

    with tempfile.TemporaryDirectory() as folder_of_said, ThreadPoolExecutor(1) as threads:
        said = Path(folder_of_said) / "said"
        try:
            with said.open("wb") as sink, _running(command, sink) as process:
                yield threads.submit(waited, process).result
        finally:  # also where it was stopped: then it says by which test
            print(f"\n{'=' * 20} {group}\n{said.read_text(errors='replace')}", flush=True)


def _command(group: str, environment: str, folder: str, options: Sequence[str]) -> list[str] | None:
    """What runs a folder's tests; None where it has none. Where pytest collects none, it ends with 5."""
    others = [other for other in AIRFLOW_FOLDERS if other != folder and other.startswith(folder)]
    files = [file for file in _tests(folder) if not any(str(file).startswith(f"{ROOT / other}/") for other in others)]
    if not files:
        print(f"{folder} has no test file: was it moved?")
        return None
    if not PYTHONS[environment].is_file():
        target = f"test-{environment}" if environment in APART else "setup"
        print(f'.venv/{environment} is missing. Run "make {target}".')
        return None
    ignored = [f"--ignore={other}" for other in others]
    spread = () if group in ALONE else ("-n", str(_processes(group)), *SPREAD)
    told = ("-rP",) if group == "chaos" else ()  # what was killed, and how long it took
    left = ("-o", "tmp_path_retention_policy=failed") if group in APART else ()  # plans, and what init laid there
    command = [str(PYTHONS[environment]), "-m", "pytest", folder, *ignored, *spread, *told, *left, *options]
    return [*command, "--durations=15"]


def _processes(group: str) -> int:
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return MORE.get(group, PROCESSES) if room >= ROOM_BYTES_MIN else PROCESSES


def _busy_seconds() -> float | None:
    """Processor time that this machine has spent since it started; None where it does not say (macOS)."""
    try:
        times = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return None
    idle, waiting = times[3], times[4]
    return (sum(times) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def _lint() -> Result:
    """Ruff and mypy side by side; mypy twice, because each environment has its own libraries."""
    print(f"\n{'=' * 20} lint", flush=True)
    began = time.monotonic()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        ended = list(
            threads.map(_check, (_mypy("spark"), _mypy("airflow"), _ruff("check"), _ruff("format", "--check")))
        )
    return Result(group="lint", verdict="passed" if all(ended) else "FAILED", seconds=time.monotonic() - began)


def _ruff(*command: str) -> list[str]:
    return [str(TOOLS / "ruff"), *command, "--quiet", "--output-format=concise", "."]


def _mypy(environment: str) -> list[str]:
    """Command that checks the folders which this environment runs."""
    if environment == "airflow":
        folders, excluded = list(AIRFLOW_FOLDERS), []
    else:
        folders = ["deltaworks", "spark_apps", "shop", "tables", "bench", "tests"]
        excluded = [f"--exclude=^{folder}/" for folder in AIRFLOW_FOLDERS]
    there = [folder for folder in folders if next((ROOT / folder).rglob("*.py"), None)]
    cache = ["--cache-dir", f".mypy_cache/{environment}"]
    return [str(TOOLS / "mypy"), "--python-executable", str(PYTHONS[environment]), *cache, *excluded, *there]


def _check(command: list[str]) -> bool:
    """Run a checker and print what it said under its name."""
    ran = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    name = " ".join(part for part in command if not part.startswith(("/", "-")) and "cache" not in part)
    print(f"--- {Path(command[0]).name} {name}: {'ok' if ran.returncode == 0 else 'FAILED'}\n{ran.stdout}{ran.stderr}")
    return ran.returncode == 0


def _tests(folder: str) -> list[Path]:
    return [*(ROOT / folder).rglob("test_*.py"), *(ROOT / folder).rglob("*_test.py")]


@contextmanager
def _running(
    command: list[str], output: IO[bytes] | None = None, *, java: Sequence[str] = JAVA
) -> Iterator[subprocess.Popen[bytes]]:
    """A group in a process group of its own, which is stopped when it takes too long or we are interrupted."""
    inherited = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    environment = {**SAME_AS_DRIVERS, **inherited}
    if java:
        environment["JDK_JAVA_OPTIONS"] = " ".join((environment.get("JDK_JAVA_OPTIONS", ""), *java)).strip()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)  # pytest then tears its fixtures down
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _code(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(GROUP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        print(f"stopped after {GROUP_SECONDS_MAX} s")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
