"""A driver that can be stopped at a chosen commit: its rows come from a seed, for want of a broker; all else is real.

    python -m tests.chaos.mortal --app shop --path spark --seed 7 --halt-at 4

It says "ready" when Spark is there, and with `--calm` a lake without faults, waits for a line, takes the lease, works,
and says "commit N" for each commit whose guard has let it pass. At `--halt-at` it then waits for another line: the
worst moment to be stopped in. A driver with `--halt-at` stays at work without rows until it is not the owner any more:
it is there to be stopped, however quick it was.
"""

import argparse
import logging
import sys
import time
from random import Random

from deltaworks.engine.broker import Edge
from deltaworks.engine.driver import LOOP_SECONDS, Driver, leave
from deltaworks.engine.flow import Flow
from deltaworks.engine.session import open_session
from deltaworks.settings import Settings
from tests.flows import Log, Owner, Record
from tests.shop_rows import random_changes, random_views

ROWS, BATCH = 60, 20
REST_SECONDS_MAX = 240.0  # whoever is woken and is told of no new owner by then, is told never


class Mortal(Driver):
    """The driver of one app; a stand-in for Kafka hands it its rows."""

    def __init__(self, *, app: str, settings: Settings, path: str, seed: int, halt_at: int) -> None:
        """Prepare."""
        super().__init__(app=app, settings=settings, drain=True)
        self.path, self.seed, self.halt_at, self.commits = path, seed, halt_at, 0
        self.spark = open_session(name=f"mortal {app}", settings=settings, app=settings.app(app), brief=True)

    def _work(self) -> None:
        flow = self._open()
        flow.guard = self._guard
        log = Log()
        log.send(records(self.app, self.seed))
        log.batch()
        starts = flow.begin({topic: {str(p): Edge(0, 10**9) for p in range(2)} for topic in flow.topics}, broker=None)
        rows = log.beyond(starts)
        for start in range(0, rows.num_rows, BATCH):
            self._still_ours()
            part = rows.take(list(range(start, min(start + BATCH, rows.num_rows))))  # Spark takes no slice with nulls
            with self.lock:
                flow.micro_batch(self.spark.createDataFrame(part))
        while flow.behind():
            flow.turn(self.spark)
        flow.settle()
        until = time.monotonic() + (REST_SECONDS_MAX if self.halt_at else 0)
        while time.monotonic() < until:
            self._still_ours()
            time.sleep(LOOP_SECONDS)  # as the loop of a driver: nothing wakes it

    def _open(self) -> Flow:
        flow = super()._open()
        flow.path, flow._large = self.path, self.path == "spark"  # drivers choose by bytes
        return flow

    def _guard(self) -> None:
        self.ownership.guard()
        self.commits += 1
        say(f"commit {self.commits}")
        if self.commits == self.halt_at:
            sys.stdin.readline()


def records(app: str, seed: int) -> list[Record]:
    """What the sources have sent, the same for the same seed."""
    chance = Random(seed)
    return random_views(chance, ROWS) if app == "web" else random_changes(chance, ROWS)


def calm(mortal: Mortal) -> None:
    """Another lake from the same rows, without any fault, beside the driver's own."""
    owner = Owner(mortal.spark, mortal.settings.changed(data=mortal.settings.data / "calm"), mortal.app)
    log = Log()
    log.send(records(mortal.app, mortal.seed))
    owner.take(log.batch())
    owner.flow.settle()


def say(line: str) -> None:
    """Tell whoever has started this process."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Parse arguments, run, give the driver's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--app", required=True)
    parser.add_argument("--path", choices=("auto", "spark"), required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--halt-at", type=int, default=0)
    parser.add_argument("--calm", action="store_true", help="first make a lake without faults beside it")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    mortal = Mortal(
        app=given.app, settings=Settings.load(), path=given.path, seed=given.seed, halt_at=given.halt_at
    )  # fmt: skip
    if given.calm:
        calm(mortal)
    say("ready")
    sys.stdin.readline()
    try:
        code = mortal.run()
    except Exception:
        logging.getLogger("deltaworks").exception("the driver failed")
        code = 1
    return code


if __name__ == "__main__":
    leave(main())
