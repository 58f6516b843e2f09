"""Faults of the disk that the lake is on."""

import os
import resource
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from deltaworks.errors import StackError
from deltaworks.local.chaos.drivers import processes_of
from deltaworks.local.chaos.fault import Lost, Scene

SMALL_BYTES_MAX = 2 * 2**30
_PIECE_BYTES = 4 * 2**20
_FILE_BYTES_MAX = 2_000  # a log file with an entry is longer
_SLOW_CALLS = "openat,rename,renameat,renameat2,unlink,fsync,fdatasync"
_PTRACE = Path("/proc/sys/kernel/yama/ptrace_scope")


def fill(scene: Scene) -> Lost:
    """Fill the lake's disk to the last byte, keep it full, then free it."""
    seconds, path = scene.seconds(10, 25), scene.settings.lake / ".filled-by-chaos"
    try:
        _take_all(path)
        full = shutil.disk_usage(scene.settings.lake).free
        scene.say(f"the lake's disk is full for {seconds:g} s: {full} bytes are free")
        for _ in range(int(seconds)):
            scene.wait(1)
            _take_all(path)
    finally:
        path.unlink(missing_ok=True)
    return {}


def small_disk(scene: Scene) -> str:
    """Why the disk is not filled: only one that the lake has for itself, and a small one."""
    lake = scene.settings.lake
    if not lake.is_dir():
        return f"there is no {lake}"
    if lake.stat().st_dev == scene.settings.data.stat().st_dev:
        return f"{lake} is on no disk of its own: stop the stack and mount a small one there (mount needs root)"
    total = shutil.disk_usage(lake).total
    return "" if total <= SMALL_BYTES_MAX else f"the disk of {lake} has {total / 2**30:.0f} GB, 2 GB at most are filled"


def refuse_writes(scene: Scene) -> Lost:
    """Let no process of the driver write beyond the first bytes of a file (RLIMIT_FSIZE), then take the limit away."""
    seconds, pids = scene.seconds(5, 15), processes_of(scene)
    scene.say(f"the driver of {scene.app} cannot write beyond byte {_FILE_BYTES_MAX:,} of a file for {seconds:g} s")
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    try:
        for pid, (_, hard) in before.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (_FILE_BYTES_MAX, hard))
        scene.wait(seconds)
    finally:
        for pid, limits in before.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    return {}


def no_limits(_: Scene) -> str:
    """Why another process cannot be limited here."""
    return "" if hasattr(resource, "prlimit") else "this system cannot limit another process (prlimit is Linux's)"


def slow_down(scene: Scene) -> Lost:
    """Delay each call of the driver that opens, renames, removes or syncs a file (strace holds it back)."""
    seconds, delay = scene.seconds(15, 30), scene.chance.choice((10, 30, 100))
    scene.say(f"each file call of the driver of {scene.app} takes {delay} ms longer, for {seconds:g} s")
    attached = [word for pid in processes_of(scene) for word in ("-p", str(pid))]
    inject = f"inject={_SLOW_CALLS}:delay_enter={delay * 1000}"
    command = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={_SLOW_CALLS}", "-e", inject, *attached]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as tracer:
        try:
            scene.wait(seconds)
        finally:
            ended = tracer.poll()
            tracer.send_signal(signal.SIGINT)  # it lets go of all that it holds
            said = tracer.communicate(timeout=30)[1]
    if ended is not None:
        raise StackError("strace", f"ended early with code {ended}: {said.strip()[-200:]}", "Run it by hand")
    return {}


def no_tracer(_: Scene) -> str:
    """Why file calls cannot be held back here."""
    if shutil.which("strace") is None:
        return "strace is not installed, which holds file calls back"
    if os.geteuid() and _PTRACE.exists() and _PTRACE.read_text().strip() != "0":
        return f"only root may trace other processes here ({_PTRACE})"
    return ""


def _take_all(path: Path) -> None:
    """Make the file longer until nothing is free; in smaller and smaller pieces."""
    with path.open("ab") as file:
        piece = _PIECE_BYTES
        while piece:
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, piece)
            except OSError:
                piece //= 2
                if piece < 512:
                    return
