"""A site: a checkout's stack in a data folder of its own, started and asked through the checkout's own command line.

What runs there is looked at from outside: the control store and the shop's database by SQL, topics by Kafka's own
protocol, tables by their logs and files. So one program measures any revision that has these.
"""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg.rows import class_row

from bench.checkout import Checkout, own_environment
from bench.program import Program
from bench.stand import ports_from
from deltaworks import processes
from deltaworks.cli.show import err
from deltaworks.errors import StackError
from deltaworks.settings import ROOT, Settings

_PARTS = ("source", "control", "kafka", "connect", "airflow")
_DRIVERS = """
    select app, epoch, pid, process_started, coalesce(state, 'silent') as state, coalesce(progress, '{}') as progress
    from leases left join heartbeats using (app, epoch) order by app"""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The last driver of an app: what its lease and its heartbeat say."""

    app: str
    epoch: int
    pid: int
    process_started: str
    state: str
    """As it says itself; silent before its first heartbeat."""
    progress: Mapping[str, Any]

    @property
    def works(self) -> bool:
        """Whether it has done a batch."""
        return self.state == "running" and self.progress.get("batches", 0) > 0

    @property
    def began(self) -> float:
        """When its process started, by the monotonic clock; /proc has it in ticks since the machine's start."""
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(self.process_started) / os.sysconf("SC_CLK_TCK")
        return time.monotonic() - age

    def kill(self) -> None:
        """SIGKILL its process, if it is this very one."""
        if processes.lives(self.pid, self.process_started):
            os.kill(self.pid, signal.SIGKILL)


class Site:
    """The stack of a checkout, at work."""

    def __init__(self, checkout: Checkout, *, data: Path, port_first: int) -> None:
        """Name its ports; nothing starts."""
        ports = ports_from(port_first)
        self.checkout = checkout
        self.settings = Settings.load(ROOT, environment={}, data=data, **ports).changed(project=checkout.folder)
        """Where its parts are. Of this checkout's settings only addresses are used."""
        known = checkout.ports()
        further = [name for name in known if name not in ports]
        ports |= {name: port_first + len(ports) + place for place, name in enumerate(further)}
        settings = {"data": data, **{name: ports[name] for name in known}}
        own = {f"DELTAWORKS_{name.upper()}": str(value) for name, value in settings.items()}
        self.environment: Mapping[str, str] = MappingProxyType(own_environment() | own)

    def command(self, *words: str, fine: Collection[int] = (0,)) -> str:
        """Run the checkout's command line, and return what it printed; raises StackError if its code is not fine."""
        program = str(self.checkout.folder / "bin/deltaworks")
        return self.checkout.run(program, *words, environment=self.environment, fine=fine)

    def program(self, name: str, module: Sequence[str]) -> Program:
        """Start a Python module of the checkout with its arguments."""
        command = [str(self.checkout.python), "-m", *module]
        return Program(name, command, settings=self.settings, environment=self.environment)

    def drivers(self) -> dict[str, Driver]:
        """The last driver of each app that ever had one."""
        with (
            psycopg.connect(self.settings.control_dsn(), autocommit=True, connect_timeout=5) as store,
            store.cursor(row_factory=class_row(Driver)) as cursor,
        ):
            return {driver.app: driver for driver in cursor.execute(_DRIVERS).fetchall()}

    def sessions(self) -> set[int]:
        """Sessions of the parts that run, the drivers not among them."""
        found = json.loads(self.command("status", "--json", fine=(0, 1)))  # 1: a part is not ready just now
        return {int(part["pid"]) for part in found if part["pid"]}


@contextmanager
def site(checkout: Checkout, *, port_first: int, keep: bool) -> Iterator[Site]:
    """Start a stack whose data is in a scratch folder; stop it whatever happens.

    `keep` leaves the folder (logs, tables) for a look. Raises StackError where there is no /proc to measure by.
    """
    if not Path("/proc/self/stat").exists():
        raise StackError("/proc", "is missing", "Run the benchmarks on Linux")
    data = Path(tempfile.mkdtemp(prefix="deltaworks-bench-"))
    found = Site(checkout, data=data, port_first=port_first)
    try:
        found.command("up", *_PARTS)
        yield found
    finally:
        try:
            found.command("down")
        finally:
            if keep:
                err.print(f"kept {data}")
            else:
                shutil.rmtree(data, ignore_errors=True)
