"""Who is killed: an app's Spark driver or a part of the stack, found by what our own records say and never by name."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from deltaworks import processes
from deltaworks.control import Store
from deltaworks.errors import StackError
from deltaworks.local import stack
from deltaworks.settings import Settings

PARTS: Mapping[str, str] = {
    "kafka": "kafka",
    "connect": "connect",
    "source": "source",
    "scheduler": "airflow-scheduler",
}
"""What may be killed beside the drivers, and what the supervisor calls it."""


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A driver's Python or JVM, or the main process of a part (of source: Postgres' postmaster)."""

    name: str
    process: Literal["python", "jvm", "main"]

    def __str__(self) -> str:
        return self.name if self.process == "main" else f"{self.name} driver"

    def may_restart(self, app: str) -> bool:
        """Whether the app's driver may be another one afterwards: its own death, or the broker's under its query."""
        return self.name in {app, "kafka"}


def draw(chance: Random, *, apps: Iterable[str], driver_kills: int, parts: Iterable[str]) -> list[Victim]:
    """Draw the victims: each app's driver before one is drawn again, each part once, all in an order by chance."""
    known = sorted(apps)
    named = chance.sample(known, min(len(known), driver_kills))
    named += chance.choices(known, k=driver_kills - len(named))
    drivers = [Victim(name=name, process=chance.choice(("python", "jvm"))) for name in named]
    drawn = [*drivers, *(Victim(name=part, process="main") for part in parts)]
    chance.shuffle(drawn)
    return drawn


def kill(settings: Settings, store: Store, victim: Victim) -> int:
    """SIGKILL the one process and nothing else; returns its pid. Raises StackError if there is none."""
    pid = _part(settings, victim) if victim.process == "main" else _driver(store, victim)
    os.kill(pid, signal.SIGKILL)
    return pid


def _part(settings: Settings, victim: Victim) -> int:
    known = stack.state(settings).parts.get(PARTS[victim.name])
    if known is None or known.pid is None or not processes.lives(known.pid, known.started):
        raise StackError(victim.name, "does not run, so it cannot be killed", 'Run "deltaworks status"')
    return known.pid


def _driver(store: Store, victim: Victim) -> int:
    lease = store.lease(victim.name)
    if lease is None or not processes.lives(lease.pid, lease.process_started):
        raise StackError(f"app {victim.name}", "has no driver that could be killed", "Look at its log")
    if victim.process == "python":
        return lease.pid
    children = [one.pid for one in processes.table() if one.parent == lease.pid and not one.zombie]
    # spark-submit becomes the JVM; beside it a recomputation may run, whose own JVM is its child
    jvms = [pid for pid in children if is_java(pid)]
    if len(jvms) != 1:
        raise StackError(f"app {victim.name}", f"its driver has {len(jvms)} JVMs, not one", "Look at its log")
    return jvms[0]


def is_java(pid: int) -> bool:
    """Whether a process is a JVM, by the name of its program."""
    if sys.platform == "linux":
        try:
            name = Path(f"/proc/{pid}/comm").read_text()
        except OSError:  # gone by now
            return False
    else:
        asked = subprocess.run(["ps", "-o", "comm=", "-p", str(pid)], capture_output=True, text=True, check=False)
        name = asked.stdout
    return Path(name.strip()).name == "java"
