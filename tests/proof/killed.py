"""One step of a workload in a process of its own, which kills itself where the environment says: DELTAWORKS_FAIL_AT.

    DELTAWORKS_FAIL_AT=silver.orders.batch.after-commit python -m tests.proof.killed APP PATH SEED STEP FOLDER

Started by `kill`, over a lake that lies in FOLDER. Coming to its end is a failure: it was to die.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from deltaworks.engine.checker import Finding
from deltaworks.engine.points import die_at
from deltaworks.engine.session import open_session
from deltaworks.settings import ROOT, Settings
from tests.proof.walk import Death, Walk
from tests.proof.workloads import WORKLOADS

SECONDS_MAX = 300
OWNERS_BEFORE = 50  # epochs that the killed process may have used


def kill(walk: Walk, death: Death) -> list[Finding]:
    """Let a process die there by signal 9, start another owner over its lake; what is wrong with what comes out."""
    settings = walk.copy(death.step)
    arguments = [walk.workload.app, walk.path, str(walk.seed), death.step, str(walk.folder)]
    said = walk.folder / "said"
    with said.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.killed", *arguments],
            cwd=ROOT,
            env={**settings.inherited(), "DELTAWORKS_FAIL_AT": f"{death.point}:{death.time}"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_MAX)
    died = process.poll()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its JVM too: before a new owner starts, the old one is dead
    process.wait()
    if died != -signal.SIGKILL:
        ended = f"ended with {died}" if died is not None else f"was alive after {SECONDS_MAX} s"
        last = said.read_text(errors="replace").strip().splitlines()[-1:] or ["nothing"]
        told = f"the process {ended}, said last: {last[0][:300]}"
        return [Finding("drill", str(death), told, "Repeat with the seed")]
    walk.live(settings, death.step, owners_before=OWNERS_BEFORE)
    return walk.judge(settings, death.step)


def main(app: str, path: str, seed: str, step: str, folder: str) -> None:
    """Go through the step; the death is in the settings."""
    settings = Settings.load()
    assert settings.fail_at is not None
    workload = next(one for one in WORKLOADS if one.app == app)
    spark = open_session(name="dying", settings=settings, app=settings.app(app), brief=True)
    walk = Walk(workload=workload, path=path, seed=int(seed), folder=Path(folder), spark=spark)
    die_at(settings.fail_at)
    walk.live(settings, step)


if __name__ == "__main__":
    main(*sys.argv[1:])
