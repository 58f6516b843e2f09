"""A Docker for the test: the one that runs, else one of its own, which leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from deltaworks.errors import StackError

_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 60


@contextmanager
def engine(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Give the environment in which `docker` works. Raises StackError if there is no way to one."""
    found = dict(environment)
    if _answers(found):
        yield found
        return
    daemon = shutil.which("dockerd")
    if daemon is None or os.geteuid() != 0:
        finding = "does not answer, and to start one takes root and the program dockerd"
        raise StackError("docker", finding, "Start Docker, or install it with its compose plugin")
    # a socket's path has a short limit
    folder = Path(tempfile.mkdtemp(prefix="dw-", dir="/tmp"))  # a fresh folder of our own, closed to others
    try:
        with _own(daemon, folder, found | {"DOCKER_HOST": f"unix://{folder}/docker.sock"}) as own:
            yield own
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _own(daemon: str, folder: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Run a daemon in process and mount namespaces of its own, with the host's firewall left alone."""
    group = f"/deltaworks-{os.getpid()}"
    command = [
        "unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc", daemon,
        "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none", "--cgroup-parent", group,
        "--data-root", str(folder / "data"), "--exec-root", str(folder / "run"), "--pidfile", str(folder / "pid"),
        "--host", environment["DOCKER_HOST"],
    ]  # fmt: skip
    with (folder / "log").open("wb") as log, subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + _START_SECONDS_MAX
            while not _answers(environment):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise StackError("dockerd", (folder / "log").read_text()[-600:], "See the message")
                time.sleep(0.3)
            yield environment
        finally:
            _stop(process, group)


def _stop(process: "subprocess.Popen[bytes]", group: str) -> None:
    """End the daemon in order, else all in its namespace; take its groups away."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with suppress(OSError, ProcessLookupError):
        for pid in children.read_text().split():
            os.kill(int(pid), signal.SIGTERM)
    try:
        process.wait(_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for top in Path("/sys/fs/cgroup").glob(f"*{group}"):
        for made in sorted((one for one in top.rglob("*") if one.is_dir()), reverse=True):
            with suppress(OSError):
                made.rmdir()
        with suppress(OSError):
            top.rmdir()


def _answers(environment: Mapping[str, str]) -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    asked = subprocess.run([docker, "info"], env=dict(environment), capture_output=True, check=False)
    return asked.returncode == 0
