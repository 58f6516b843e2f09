"""Faults of an app's driver: its processes are found by its lease, never by name."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from deltaworks import processes
from deltaworks.errors import ControlError, StackError
from deltaworks.local.chaos.fault import Lost, Scene


def restart(scene: Scene) -> Lost:
    """Stop the app in good order and want it running again."""
    lease = scene.store.lease(scene.app)
    scene.store.desire(scene.app, "stopped", by="chaos", reason="a fault")
    try:
        if lease is not None:
            scene.until(lambda: not processes.lives(lease.pid, lease.process_started), "the driver's end")
    finally:
        scene.store.desire(scene.app, "running", by="chaos", reason="a fault")
    scene.say(f"the driver of {scene.app} was stopped in good order")
    return {}


def kill(scene: Scene) -> Lost:
    """Kill the driver's Python or its JVM, by chance."""
    every = processes_of(scene)
    which = scene.chance.choice(("Python", "JVM"))
    pid = every[0] if which == "Python" else _jvm(scene, every[0])
    started = processes.started(pid)
    os.kill(pid, signal.SIGKILL)
    scene.say(f"killed the driver of {scene.app}: its {which}, pid {pid}")
    scene.until(lambda: not processes.lives(pid, started), "the end of the process")
    return {}


def stop(scene: Scene) -> Lost:
    """Stop all processes of the driver for longer than its lease lasts, then let them go on."""
    seconds = scene.settings.lease_seconds * scene.seconds(1.2, 1.8)
    scene.say(
        f"the driver of {scene.app} is stopped for {seconds:.0f} s, its lease lasts {scene.settings.lease_seconds:g} s"
    )
    with halted(processes_of(scene)):
        scene.wait(seconds)
    return {}


def processes_of(scene: Scene) -> list[int]:
    """The driver and all that descends from it, the driver first; waits for one that is being started."""
    scene.until(lambda: _driver(scene) is not None, f"a driver of {scene.app}")
    driver = _driver(scene)
    return [] if driver is None else processes.family(driver)


def _driver(scene: Scene) -> int | None:
    try:
        lease = scene.store.lease(scene.app)
    except ControlError:
        return None
    return lease.pid if lease is not None and processes.lives(lease.pid, lease.process_started) else None


@contextmanager
def halted(pids: list[int]) -> Iterator[None]:
    """SIGSTOP, and SIGCONT whatever happens."""
    try:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _jvm(scene: Scene, driver: int) -> int:
    children = [one.pid for one in processes.table() if one.parent == driver and not one.zombie]
    if len(children) != 1:  # spark-submit becomes the JVM; Python workers are the JVM's children
        raise StackError(f"app {scene.app}", f"its driver has {len(children)} children, not one", "Look at its log")
    return children[0]
