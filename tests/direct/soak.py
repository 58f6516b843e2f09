"""Many batches through many plans on several threads, beside ordinary jobs: right rows, and nothing that grows."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from bench import functions
from pyspark.sql import SparkSession

from tests.differential import contents
from tests.direct.both import Both, Given, Room

PLANS = 50
THREADS = 3
HEAP_GROWS_MAX = 24 * 2**20
"""Bytes: what is cached for good by number of batches, not of plans, would be more in ten thousand of them."""
RESIDENT_GROWS_MAX = 96 * 2**20
"""Bytes, of both processes: the JVM's code and arenas go on growing for some minutes."""
FEW = 12
"""Threads, files and descriptors: pools that came late, the gateway's connections."""
MOST = {
    "heap": HEAP_GROWS_MAX,
    "resident": RESIDENT_GROWS_MAX,
    **dict.fromkeys(("threads", "descriptors", "files", "blocks"), FEW),
}
"""By how much what is held may grow."""


@dataclass(frozen=True, kw_only=True)
class State:
    """What a process and its JVM hold."""

    heap: int
    resident: int
    threads: int
    descriptors: int
    files: int
    blocks: int
    used: int
    """Bytes of execution memory that tasks have not given back."""

    @classmethod
    def now(cls, spark: SparkSession, room: Room) -> "State":
        """After the JVM has collected its garbage."""
        jvm: Any = spark._jvm
        for _ in range(2):
            jvm.java.lang.System.gc()
        runtime, mine = jvm.java.lang.Runtime.getRuntime(), os.getpid()
        its = int(jvm.java.lang.ProcessHandle.current().pid())
        beans = jvm.java.lang.management.ManagementFactory
        return cls(
            heap=int(runtime.totalMemory() - runtime.freeMemory()),
            resident=sum(map(_resident, (mine, its))),
            threads=threading.active_count() + int(beans.getThreadMXBean().getThreadCount()),
            descriptors=sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in (mine, its)),
            files=_files(Path(str(spark.sparkContext.getConf().get("spark.local.dir")))),
            blocks=int(room.internals.blocks.blockInfoManager().getNumberOfMapEntries()),
            used=int(room.internals.memory.executionMemoryUsed()),
        )

    def grown(self, before: "State") -> list[str]:
        """What is more than it may be; nothing is well."""
        found = []
        for name, most in MOST.items():
            was, now = getattr(before, name), getattr(self, name)
            if now - was > most:
                found.append(f"{name} {was:,}, then {now:,}")
        return [*found, *([f"{self.used:,} bytes of execution memory are in use"] if self.used else [])]


def _resident(pid: int) -> int:
    line = next(one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def _files(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A plan, some rows for it, and what they give."""

    name: str
    both: Both
    given: Sequence[Given]
    wanted: Sequence[Sequence[str]]

    def wrong(self, number: int) -> str | None:
        """Compute some of them; says so if other rows come."""
        at = number % len(self.given)
        same = contents(self.both.direct(self.given[at])) == self.wanted[at]
        return None if same else f"{self.name}: other rows in batch {number}"


def soak(spark: SparkSession, *, batches: int, plans: int = PLANS, seed: int = 1) -> Iterator[str]:
    """So many batches; each line is a finding, none is well."""
    room = Room(spark)
    kept = [_kept(room, function, Random(seed)) for function in islice(functions.functions(spark), plans)]
    yield from _batches(kept, batches // 10)  # what is made once, is made
    _jobs(kept[0], threading.Event(), most=3)
    before = State.now(spark, room)
    stopping = threading.Event()
    with ThreadPoolExecutor(1) as beside:
        jobs = beside.submit(_jobs, kept[0], stopping)
        try:
            yield from _batches(kept, batches)
        finally:
            stopping.set()
        jobs.result()
    after = State.now(spark, room)
    print(f"{before}\n{after}")  # noqa: T201  # shown with a failure
    yield from after.grown(before)
    for one in kept:
        one.both.close()


def _kept(room: Room, function: functions.Function, chance: Random) -> Kept:
    both = Both(room, function.call, function.inputs)
    given = [
        {name: functions.rows(chance, schema, many) for name, schema in function.inputs.items()}
        for many in (60, 0, 5, 300)
    ]
    return Kept(name=function.name, both=both, given=given, wanted=[contents(both.ordinary(one)) for one in given])


def _batches(kept: Sequence[Kept], batches: int) -> Iterator[str]:
    """Threads take batches in turn, so that all of them use each plan, which computes one at a time."""

    def some(first: int) -> list[str]:
        found = (kept[number % len(kept)].wrong(number // len(kept)) for number in range(first, batches, THREADS))
        return [one for one in found if one is not None]

    with ThreadPoolExecutor(THREADS) as threads:
        for found in threads.map(some, range(THREADS)):
            yield from found


def _jobs(kept: Kept, stopping: threading.Event, most: int = 10**9) -> None:
    """Ordinary jobs, until it is time to stop."""
    for number in range(most):
        if stopping.is_set():
            return
        kept.both.ordinary(kept.given[number % len(kept.given)])
        stopping.wait(0.2)
