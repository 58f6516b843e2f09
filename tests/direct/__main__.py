"""Hold direct plans against Spark's ordinary way, by hand.

`python -m tests.direct --seeds 200` (from the checkout) tries so many transforms made by chance and tells the seeds
that differ; `--first N` begins at another one. `--views N` cuts so many views to keys. `--soak` sends ten thousand
batches through fifty plans.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from deltaworks.engine.session import open_session
from deltaworks.settings import ROOT, AppSettings, Settings
from tests.direct.both import Room
from tests.direct.differences import KINDS, several
from tests.direct.soak import soak
from tests.direct.views import views


@contextmanager
def _session() -> Iterator[SparkSession]:
    """As drivers have it."""
    with tempfile.TemporaryDirectory(prefix="direct-", ignore_cleanup_errors=True) as folder:
        settings = Settings.load(ROOT, environment={}, data=Path(folder))
        spark = open_session(name="direct", settings=settings, app=AppSettings(), few_rows=True)
        try:
            yield spark
        finally:
            spark.stop()


def main(arguments: Sequence[str]) -> int:
    """Try many seeds; 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.direct", description="Hold both ways together.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seeds", type=int, default=100)
    what.add_argument("--views", type=int)
    what.add_argument("--soak", action="store_true")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--batches", type=int, default=10_000)
    asked = parser.parse_args(arguments)
    if min(asked.seeds, asked.batches, 1 if asked.views is None else asked.views) < 1:
        parser.error("one at least, else nothing is tried")
    with _session() as spark:
        if asked.soak:
            return _told(soak(spark, batches=asked.batches))
        if asked.views is not None:
            return _told(views(Room(spark), range(asked.first, asked.first + asked.views)))
        return _seeds(Room(spark), range(asked.first, asked.first + asked.seeds))


def _told(findings: Iterable[str]) -> int:
    found = list(findings)
    print("\n".join(found) or "nothing found")  # noqa: T201  # its report
    return 1 if found else 0


def _seeds(room: Room, seeds: Sequence[int]) -> int:
    refused, seen, wrong = Counter[str](), Counter[str](), 0
    for found in several(room, seeds, batches=len(KINDS) - 2, large=0.1):
        if found.refused is not None:
            refused[found.refused] += 1
        seen.update(found.seen)
        wrong += bool(found.differences)
        if found.differences:
            print(found, flush=True)  # noqa: T201  # its report
    for title, counts in (("refused", refused), ("batches", seen)):
        for what, many in counts.most_common():
            print(f"{title}: {many} {what}")  # noqa: T201  # the same
    print(f"{wrong} of {len(seeds)} differ")  # noqa: T201  # the same
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
