"""What a process gives up for good: writing, executing, the network, and files outside of the folders it is given.

By Landlock (Linux 5.13 and newer, docs.kernel.org/userspace-api/landlock.html) and by resource limits (POSIX). Landlock
holds for the thread that asks for it and for those that it starts: before the libraries of a process start threads.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_ASK_FOR_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_OPEN_PATH = getattr(os, "O_PATH", 0)  # Linux only, as is Landlock
_FILE_RIGHTS = ((1, 13), (2, 14), (3, 15), (5, 16))  # from this version on: so many kinds of access to files
_NETWORK_SINCE, _NETWORK_RIGHTS = 4, 0b11  # bind and connect, of TCP
_SCOPES_SINCE, _SCOPES = 6, 0b11  # abstract sockets of others, and signals to others


class _Ruleset(ctypes.Structure):
    """What is refused unless a rule allows it (`struct landlock_ruleset_attr`)."""

    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    """What is allowed below one path (`struct landlock_path_beneath_attr`)."""

    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def read_only(paths: Iterable[Path]) -> int:
    """Let this thread read what lies at or below the paths, and nothing else; returns Landlock's version.

    0 where the machine has none of it: then nothing was given up. Paths that do not exist are passed over. Raises
    OSError where Landlock is there and refuses.
    """
    if not sys.platform.startswith("linux"):
        return 0
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    version = int(call(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_FOR_VERSION))
    if version < 1:
        return 0
    kinds = max(count for since, count in _FILE_RIGHTS if since <= version)
    wanted = _Ruleset(
        files=(1 << kinds) - 1,
        network=_NETWORK_RIGHTS if version >= _NETWORK_SINCE else 0,
        scopes=_SCOPES if version >= _SCOPES_SINCE else 0,
    )
    # an older kernel knows only the first fields, and refuses more
    fields = 1 + (version >= _NETWORK_SINCE) + (version >= _SCOPES_SINCE)
    ruleset = _done(call(_CREATE_RULESET, ctypes.byref(wanted), ctypes.c_size_t(8 * fields), 0))
    try:
        for path in paths:
            _allow(call, ruleset, path)
        _done(ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _done(call(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return version


def no_files_grow() -> None:
    """No file can be given a byte any more, and a crash leaves no core file; both for the whole process.

    Without Landlock an empty file can still be made, and one that is there be emptied.
    """
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def bound_memory(more_bytes: int) -> None:
    """Give the process no more than so many bytes of address space beyond what it has now.

    Nothing on macOS, which does not hold this limit.
    """
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return
    now = int(pages.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more_bytes, now + more_bytes))


def _allow(call: "ctypes._NamedFuncPointer", ruleset: int, path: Path) -> None:
    try:
        opened = os.open(path, _OPEN_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rights = _READ_FILE | _READ_FOLDER if path.is_dir() else _READ_FILE
        rule = _Beneath(allowed=rights, folder=opened)
        _done(call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(opened)


def _done(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return int(result)
