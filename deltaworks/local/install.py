"""Set-up: three Python environments from hash-pinned files, the jars, their classes archived. What bin/setup does.

Standard library only: nothing is installed yet. Every step is skipped when its stamp (a hash of all that went into it)
is current, and a step writes its stamp last: what a killed set-up left half made is made anew.
"""

import argparse
import ast
import contextlib
import dataclasses
import fcntl
import hashlib
import importlib.util
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deltaworks.errors import DeltaworksError, StackError
from deltaworks.java import CLASS_ARCHIVE, java_home
from deltaworks.local import jars, truststore

ROOT = Path(__file__).resolve().parents[2]
APART = ("terraform",)
"""Environments that only their own tests need: an emulator of AWS is nothing that the product may import."""
SIDES = ("airflow", "spark")
"""Halves of the product, for an image that needs no more: Airflow's environment; Spark's with the jars."""
_STAMP = ".current"
_FORMAT = "1"  # raise it when a step does something else with the same inputs
_SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
_TAIL_LINES = 15
_LEFT_ALONE = "a link, left alone"  # somebody put it there on purpose
_AGAIN = 'Run "make setup"'
# pip's own settings, for uv, which does not read them
_FROM_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """What a set-up is asked to do, and where."""

    root: Path
    environment: Mapping[str, str]
    jar_cache: Path
    ivy_settings: Path | None

    @property
    def venvs(self) -> Path:
        """Folder of the environments."""
        return self.root / ".venv"

    @property
    def jars(self) -> Path:
        """Folder of the jars."""
        return self.root / ".jars"

    @property
    def requirements(self) -> Path:
        """Folder of the pins."""
        return self.root / "requirements"

    @property
    def jar_list(self) -> Path:
        """File of the jars' hashes."""
        return self.requirements / "jars.sha256"


def main(arguments: list[str], *, environment: Mapping[str, str]) -> int:
    """Run bin/setup; exit codes: 0 ok, 1 --check found something, 3 cannot."""
    asked = _parse(arguments, environment)
    setup = Setup(root=ROOT, environment=environment, jar_cache=asked.jar_cache, ivy_settings=asked.ivy_settings)
    try:
        if asked.check:
            return _check(setup)
        with _alone(setup) as lock:
            if asked.only:
                _only(setup, asked.only, lock)
            else:
                _make(setup, lock=lock, relist=asked.relist, with_jars=not asked.environments)
    except DeltaworksError as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
    return 0


def _parse(arguments: list[str], environment: Mapping[str, str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bin/setup", description="Make .venv/{tools,spark,airflow} and .jars from the pins in requirements/."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="only say whether everything is as pinned")
    what.add_argument("--environments", action="store_true", help="make the environments, and leave the jars for later")
    what.add_argument(
        "--only",
        choices=(*APART, *SIDES, "classes"),
        help="make only this environment; of spark also the jars, of classes the archive alone",
    )
    what.add_argument("--relist", action="store_true", help="fetch the jars and write requirements/jars.sha256 anew")
    parser.add_argument(
        "--jar-cache",
        type=Path,
        default=Path(environment.get("JAR_CACHE") or ROOT / ".jars/.cache"),
        help="where downloaded jars are kept (default: JAR_CACHE in the environment, else .jars/.cache)",
    )
    parser.add_argument(
        "--ivy-settings",
        type=Path,
        default=Path(environment["IVY_SETTINGS"]) if environment.get("IVY_SETTINGS") else None,
        help="Ivy settings file that names your own repository (default: IVY_SETTINGS in the environment)",
    )
    asked = parser.parse_args(arguments)
    asked.jar_cache = asked.jar_cache.absolute()
    return asked


def _only(setup: Setup, name: str, lock: int) -> None:
    """Make one environment; the tools, which make it, first. The archive of classes needs only what is there."""
    if name == "classes":
        _step("classes", lambda: _classes(setup, lock))
        return
    _need_venv()
    _step("tools", lambda: _tools(setup, lock))
    variables = _uv_variables(setup)
    _step(name, lambda: _installed(setup, name, variables, lock))
    if name == "spark":
        _step("jars", lambda: _jars(setup, variables, lock, relist=False))


@contextlib.contextmanager
def _alone(setup: Setup) -> Iterator[int]:
    """Hold the set-up's lock. Children inherit it, so that what a killed set-up left running is waited for."""
    setup.venvs.mkdir(exist_ok=True)
    with (setup.venvs / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("lock", "another set-up is at work here, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _make(setup: Setup, *, lock: int, relist: bool, with_jars: bool) -> None:
    """Make what is not current: the tools, then both environments at once, the jars as soon as pyspark is there."""
    _need_venv()
    _step("tools", lambda: _tools(setup, lock))
    variables = _uv_variables(setup)
    with ThreadPoolExecutor(max_workers=1) as beside:
        airflow = beside.submit(_step, "airflow", lambda: _installed(setup, "airflow", variables, lock))
        _step("spark", lambda: _installed(setup, "spark", variables, lock))
        if with_jars:
            _step("jars", lambda: _jars(setup, variables, lock, relist=relist))
            _step("classes", lambda: _classes(setup, lock))
        airflow.result()


def _check(setup: Setup) -> int:
    """Print what is not as pinned; 1 if anything is."""
    found = [
        f".venv/{name}: is not as pinned"
        for name in ("tools", "spark", "airflow")
        if not (setup.venvs / name).is_symlink() and not _is_current(setup, name)
    ]
    found += [f".jars/{line}" for line in jars.findings(setup.jars, jars.read_list(setup.jar_list))]
    for line in found:
        print(f"{line}. {_AGAIN}.")
    if not found:
        _say("check", "environments and jars are as pinned")
    return 1 if found else 0


def _need_venv() -> None:
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            raise StackError(
                "python",
                f"{sys.executable} has no module {module}",
                f"Install python{version}-venv (apt-get install python{version}-venv), then run bin/setup again",
            )


def _step(name: str, work: Callable[[], str]) -> None:
    """Do one step and print what it did and how long it took."""
    began = time.monotonic()
    did = work()
    _say(name, f"{did} ({time.monotonic() - began:.1f} s)")


def _say(name: str, text: str) -> None:
    print(f"set-up  {name:<8} {text}\n", end="", flush=True)  # one write: two steps run at a time


def _tools(setup: Setup, lock: int) -> str:
    """Make .venv/tools with what every Python brings: venv and pip. It holds uv, which makes the others."""
    folder = setup.venvs / "tools"
    if folder.is_symlink():
        return _LEFT_ALONE
    if _is_current(setup, "tools"):
        return "current"
    _say("tools", "installing with pip")
    jars.remove(folder)
    environment = _clean(setup.environment)
    _run("tools", [sys.executable, "-m", "venv", str(folder)], environment, lock)
    pins = setup.requirements / "tools.txt"
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    _run("tools", [*pip, "--require-hashes", "--requirement", str(pins)], environment, lock)
    return _stamped(setup, "tools")


def _installed(setup: Setup, name: str, variables: Mapping[str, str], lock: int) -> str:
    """Make .venv/<name> with uv; the checkout itself is importable there."""
    folder = setup.venvs / name
    if folder.is_symlink():
        return _LEFT_ALONE
    if _is_current(setup, name):
        return "current"
    _say(name, "installing with uv (minutes on a machine that has none of it yet)")
    jars.remove(folder)
    uv = str(setup.venvs / "tools/bin/uv")
    _run(name, [uv, "venv", "--quiet", "--python", sys.executable, str(folder)], variables, lock)
    hashed = ["--require-hashes", "--build-constraints", str(setup.requirements / "build.txt")]
    pins = str(setup.requirements / f"{name}.txt")
    _run(name, [uv, "pip", "sync", "--python", str(folder / "bin/python"), *hashed, pins], variables, lock)
    (folder / _SITE / "deltaworks.pth").write_text(f"{setup.root}\n")
    return _stamped(setup, name)


def _jars(setup: Setup, variables: Mapping[str, str], lock: int, *, relist: bool) -> str:
    """Fetch the jars if the pins changed, and check every one in any case."""
    listed = {} if relist else jars.read_list(setup.jar_list)
    stamp = setup.jars / _STAMP
    if not relist and any((setup.jars / part).is_symlink() for part in jars.PARTS):
        jars.verify(setup.jars, listed, next_step=f'Remove the links in {setup.jars}, then run "make setup"')
        return f"{_LEFT_ALONE}, {len(listed)} checked"
    if not relist and stamp.is_file() and stamp.read_text() == _jar_inputs(setup):
        jars.verify(setup.jars, listed, next_step=f'Remove {setup.jars}, then run "make setup"')
        return f"current, {len(listed)} checked"
    _say("jars", "fetching with Ivy (minutes on a machine that has none of them yet)")
    made = _fetched(setup, variables, lock)
    if relist:
        jars.write_list(setup.jar_list, made)
        listed = jars.read_list(setup.jar_list)
    jars.verify(made, listed, next_step=f'Remove {setup.jar_cache}, then run "make setup" to download it again')
    stamp.unlink(missing_ok=True)
    jars.install(made, setup.jars)
    jars.remove(made.parent)
    stamp.write_text(_jar_inputs(setup))
    return f"{len(listed)} fetched and checked"


def _classes(setup: Setup, lock: int) -> str:
    """Have Spark write the classes that it loads to one file; without it a start takes longer, and that is all."""
    archive, stamp = setup.jars / CLASS_ARCHIVE, setup.jars / f".{CLASS_ARCHIVE}"
    python = setup.venvs / "spark/bin/python"
    java = java_home(environment=setup.environment, spark_python=python)
    release = java / "release"
    version = release.read_text() if release.is_file() else str(java)
    pins = (setup.requirements / "spark.txt").read_text()
    inputs = _hash([_FORMAT, str(setup.root), _jar_inputs(setup), pins, version])
    if stamp.is_file() and stamp.read_text() == inputs:
        return "current"
    _say("classes", "starting Spark once, so that it starts quickly from then on")
    ran = subprocess.run(
        [str(python), "-m", "deltaworks.engine.class_archive", str(archive)],
        env=_clean(setup.environment), cwd=setup.root, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, pass_fds=(lock,),
    )  # fmt: skip
    stamp.write_text(inputs)
    if ran.returncode == 0:
        return "archived"
    archive.unlink(missing_ok=True)
    said = ran.stderr.strip().splitlines()
    return f"none, so sessions start more slowly: {said[-1][:200] if said else 'this Java writes no archive'}"


def _fetched(setup: Setup, variables: Mapping[str, str], lock: int) -> Path:
    """Download and lay out the jars in a temporary folder, and return it."""
    work = setup.jars / ".new"
    jars.remove(work)
    work.mkdir(parents=True)
    setup.jar_cache.mkdir(parents=True, exist_ok=True)
    spark_python = setup.venvs / "spark/bin/python"
    spark_jars = setup.venvs / "spark" / _SITE / "pyspark/jars"
    options = [f"-Divy.default.ivy.user.dir={setup.jar_cache}"]  # nothing comes from or goes to the user's own ~/.ivy2
    bundle = variables.get("SSL_CERT_FILE")
    if bundle:
        truststore.write(Path(bundle), work / "trust.jks")
        options += truststore.java_options(work / "trust.jks")
    java = java_home(environment=setup.environment, spark_python=spark_python) / "bin/java"
    ivy = [str(java), *options, "-jar", str(next(spark_jars.glob("ivy-*.jar")))]
    if setup.ivy_settings:
        ivy += ["-settings", str(setup.ivy_settings)]
    jars.resolve(
        command=ivy,
        ivy_file=setup.requirements / "ivy.xml",
        cache=setup.jar_cache,
        to=work / "resolved",
        environment=setup.environment,
        lock=lock,
    )
    jars.lay_out(resolved=work / "resolved", spark_jars=spark_jars, to=work / "made")
    return work / "made"


def _jar_inputs(setup: Setup) -> str:
    return _hash([_FORMAT, setup.jar_list.read_text(), (setup.requirements / "ivy.xml").read_text()])


def _is_current(setup: Setup, name: str) -> bool:
    """Whether an environment was made of today's pins, runs, and still has every distribution."""
    folder = setup.venvs / name
    try:
        if (folder / _STAMP).read_text() != _stamp(setup, name):
            return False
        started = subprocess.run([folder / "bin/python", "-c", ""], capture_output=True, check=False)
    except OSError:
        return False
    return started.returncode == 0


def _stamped(setup: Setup, name: str) -> str:
    stamp = _stamp(setup, name)
    (setup.venvs / name / _STAMP).write_text(stamp)
    return f"{len(json.loads(stamp)['distributions'])} packages installed"


def _stamp(setup: Setup, name: str) -> str:
    """All that went into an environment, and what is in it."""
    pins = [setup.requirements / f"{name}.txt", setup.requirements / "build.txt"]
    inputs = [_FORMAT, sys.version, platform.machine(), str(setup.root), *(file.read_text() for file in pins)]
    distributions = sorted(path.name for path in (setup.venvs / name / _SITE).glob("*.dist-info"))
    return json.dumps({"inputs": _hash(inputs), "distributions": distributions})


def _hash(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would lead a child to another Python's packages."""
    misleading = {"PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PIP_TARGET", "PIP_PREFIX", "PIP_USER"}
    return {name: value for name, value in environment.items() if name not in misleading}


def _uv_variables(setup: Setup) -> dict[str, str]:
    """The environment for uv: what pip is told about indexes and certificates, in uv's own names."""
    environment = _clean(setup.environment)
    command = [str(setup.venvs / "tools/bin/python"), "-m", "pip", "config", "list"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return from_pip(told.stdout) | {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"} | environment


def from_pip(config: str) -> dict[str, str]:
    """Translate the output of `pip config list` (global.index-url='...') into uv's variables."""
    found: dict[str, str] = {}
    for line in config.splitlines():
        name, _, value = line.partition("=")
        variable = _FROM_PIP.get(name.rpartition(".")[2])
        if variable and name.startswith(("global.", "install.", ":env:.")):
            found[variable] = " ".join(str(ast.literal_eval(value)).split())
    return found


def _run(name: str, command: list[str], environment: Mapping[str, str], lock: int) -> None:
    """Run a program; when it fails raise StackError with the end of what it said."""
    ran = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        pass_fds=(lock,),
    )
    if ran.returncode != 0:
        print("\n".join(ran.stdout.splitlines()[-_TAIL_LINES:]), file=sys.stderr)
        raise StackError(
            f".venv/{name}",
            f"{Path(command[0]).name} ended with {ran.returncode}",
            f"Read above, then {_AGAIN.lower()}",
        )
