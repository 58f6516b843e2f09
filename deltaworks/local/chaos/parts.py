"""Faults of the stack's parts: killed, stopped, held down."""

import os
import signal
from collections.abc import Callable

from deltaworks import processes
from deltaworks.local import stack
from deltaworks.local.chaos.drivers import halted
from deltaworks.local.chaos.fault import Lost, Scene
from deltaworks.local.part import PartState

Inflict = Callable[[Scene], Lost]


def killed(part: str, number: signal.Signals = signal.SIGKILL) -> Inflict:
    """Send the part's main process a signal that ends it; the supervisor starts another one."""

    def inflict(scene: Scene) -> Lost:
        kill(scene, part, number)
        return {}

    return inflict


def stopped(part: str, least: float, most: float) -> Inflict:
    """SIGSTOP all processes of the part for so many seconds."""

    def inflict(scene: Scene) -> Lost:
        seconds = scene.seconds(least, most)
        scene.say(f"{part} is stopped for {seconds:g} s")
        with halted(processes.members(main_process(scene, part))):
            scene.wait(seconds)
        return {}

    return inflict


def down(part: str, least: float, most: float) -> Inflict:
    """Take the part away for so many seconds, in good order."""

    def inflict(scene: Scene) -> Lost:
        seconds = scene.seconds(least, most)
        scene.say(f"{part} is taken away for {seconds:g} s")
        try:
            stack.hold(scene.settings, part)
            scene.wait(seconds)
        finally:
            stack.up(scene.settings, parts=(part,), wait_for=())
        return {}

    return inflict


def kill(scene: Scene, part: str, number: signal.Signals = signal.SIGKILL) -> None:
    """End the part's main process and see that it is gone."""
    pid = main_process(scene, part)
    os.kill(pid, number)
    scene.say(f"{part}, pid {pid}, got {number.name}")
    scene.until(lambda: stack.state(scene.settings).parts[part].pid != pid, f"the end of {part}")


def main_process(scene: Scene, part: str) -> int:
    """Pid of the part's main process; waits for one that is being started."""
    scene.until(lambda: _runs(stack.state(scene.settings).parts.get(part)), f"{part} runs")
    pid = stack.state(scene.settings).parts[part].pid
    assert pid is not None, "it runs"
    return pid


def _runs(known: PartState | None) -> bool:
    return known is not None and known.pid is not None and processes.lives(known.pid, known.started)
