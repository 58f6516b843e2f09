"""All parts under supervision: the plan, the state file, signals, and the order of stopping."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from deltaworks.local.guard import Guard
from deltaworks.local.part import Plan, StackState, now
from deltaworks.local.watch import Watch, log
from deltaworks.processes import started


class Supervisor:
    """All watches, the state file and the signals."""

    def __init__(self, run: Path, guard: Guard) -> None:
        """`run` is the folder with plan.json, where stack.json is written."""
        self.run = run
        self.guard = guard
        self.watches: dict[str, Watch] = {}
        self.children: dict[int, Watch] = {}
        self._generation = 0
        self._stopping = asyncio.Event()
        self._write_is_due = False
        self._work: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Run until told to stop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.add_signal_handler(signal.SIGHUP, self._follow_plan)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        self._follow_plan()
        self._write()
        await self._stopping.wait()
        log("stopping")
        await asyncio.gather(*(self._stop_in_order(name) for name in self.watches))
        self._write()
        log("stopped")

    def watch(self, name: str) -> Watch:
        """Find the watch over a part."""
        return self.watches[name]

    def changed(self) -> None:
        """Write the state soon; many changes at once are one write."""
        if not self._write_is_due:
            self._write_is_due = True
            asyncio.get_running_loop().call_soon(self._write)

    def _follow_plan(self) -> None:
        plan = Plan.read(self.run)
        if plan is None or self._stopping.is_set():
            return
        for part in plan.parts:
            known = self.watches.get(part.name)
            if known is None or known.state.state == "stopped" or (part.again and known.state.state == "done"):
                self.watches[part.name] = Watch(part, owner=self, up=None if known is None else known.up)
        for name, watch in self.watches.items():
            if name in plan.held:
                self._start(watch.stop())
            elif watch.state.state == "waiting":
                watch.begin()
        self._generation = plan.generation
        self.changed()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _stop_in_order(self, name: str) -> None:
        """Stop a part after all those that need it."""
        watch = self.watches[name]
        needing = [other for other in self.watches.values() if name in other.part.after]
        watch.up.clear()
        for other in needing:
            await other.stopped.wait()
        await watch.stop()

    def _reap(self) -> None:
        """Take note of every child that ended; orphans of our parts come to us as well (we are their subreaper)."""
        while True:
            pid = _ended_child()
            if pid is None:
                return
            watch = self.children.pop(pid, None)
            if watch is not None:
                watch.reap(pid)
                continue
            os.waitpid(pid, 0)
            if pid == self.guard.pid:
                self._replace_guard()

    def _replace_guard(self) -> None:
        log("the guard was killed, forking another")
        self.guard.close()
        self.guard = Guard()
        for session, watch in self.children.items():
            self.guard.add(session, watch.state.folder)

    def _write(self) -> None:
        self._write_is_due = False
        parts = {name: watch.state for name, watch in self.watches.items()}
        own = os.getpid()
        StackState(
            generation=self._generation, pid=own, started=started(own), written=now(), parts=parts
        ).write(self.run)  # fmt: skip


def _ended_child() -> int | None:
    """Pid of a child that ended, left as a zombie; None if there is none."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid
