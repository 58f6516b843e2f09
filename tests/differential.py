"""The two commit paths held against each other, and a change from one to the other in mid-stream.

`python -m tests.differential --seeds 20` (from the checkout) tries so many projects made by chance and names the seeds
that differ; `--first N` begins at another one.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from deltaworks.analyst import connect
from deltaworks.cli.show import out
from deltaworks.engine.collect import as_arrow
from deltaworks.engine.commit import sound
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.session import open_session
from deltaworks.engine.transforms import by_short_name, load_transform
from deltaworks.settings import ROOT, AppSettings, Settings
from tests.chance import seeded
from tests.flows import Log, Owner
from tests.generated import TABLES, batches, project

BATCHES = 4
ROWS = 20
"""Events, and as many changes, in each batch."""
FILLED = TABLES.keys() - {"silver.chosen"}
"""Where rows must have come, else nothing is held against anything; a condition may let none in."""
Lake = dict[str, list[str]]


def differences(
    spark: SparkSession,
    folder: Path,
    seed: int | None = None,
    *,
    count: int = BATCHES,
    others: Sequence[str] = ("spark", "changing"),
) -> list[str]:
    """One project by chance by Arrow and the other ways, in so many batches; each line is a finding, none is well."""
    chance = seeded(seed)
    choice = project(folder / "project", chance)
    print(choice)  # noqa: T201  # shown with a failure
    parts = batches(choice, chance, count, ROWS)
    first = chance.choice(("auto", "spark"))
    turns = tuple(("auto", "spark")[(number + (first == "spark")) % 2] for number in range(count))
    ways = {"arrow": ("auto",) * count, "spark": ("spark",) * count, "changing": turns}
    owners = {}
    for way, paths in ((way, ways[way]) for way in ("arrow", *others)):
        settings = Settings.load(folder / "project", environment={}, data=folder / way)
        owners[way] = _run(spark, settings, paths, parts)
    found = [line for way in others for line in _compared(owners["arrow"], owners[way], way)]
    last = owners[others[-1]]
    return [*found, *_read_alike(spark, last), *_as_batch(spark, last), *_books(owners)]


def _run(spark: SparkSession, settings: Settings, paths: Sequence[str], parts: Sequence[Any]) -> Owner:
    owner, log = Owner(spark, settings, "made"), Log()
    for path, part in zip(paths, parts, strict=True):
        owner.flow.path, owner.flow._large = path, path == "spark"
        log.send(part)
        owner.take(log.batch())
    owner.flow.settle()
    return owner


def _compared(one: Owner, other: Owner, way: str) -> Iterator[str]:
    others = {table.name: table for table in other.flow.tables()}
    for table in one.flow.tables():
        if table is one.flow.book.table:  # of each commit its time and the table's own number
            continue
        mine, theirs = contents(table.read()), contents(others[table.name].read())
        if not mine and table.name in FILLED:
            yield f"{table.name}: there are no rows to compare"
        yield from _told(f"{way}: {table.name}", mine, theirs)
        yield from _told(f"{way}: entries of {table.name}", _entries(table), _entries(others[table.name]))


def _told(place: str, mine: Sequence[str], theirs: Sequence[str]) -> Iterator[str]:
    lacking, extra = sorted(set(mine) - set(theirs)), sorted(set(theirs) - set(mine))
    if sorted(mine) != sorted(theirs):
        yield f"{place}: {len(mine)} and {len(theirs)}; lacking {lacking[:2]}, extra {extra[:2]}"


def contents(rows: pa.Table) -> list[str]:
    """Rows as texts that tell NaN, -0.0, scales and zones apart; sorted."""
    columns = [column.to_pylist() for column in rows.columns]
    return sorted(map(repr, zip(*columns, strict=True)))


def _entries(table: OwnedTable) -> list[str]:
    """What the batches said of themselves, oldest first, but for versions."""
    said = []
    for commit in table.commits_backwards():
        assert commit.entry is not None
        if commit.entry.kind == "batch":
            entry = asdict(commit.entry)
            entry["position"].pop("versions")
            entry["position"].pop("inputs")
            entry.pop("beside")
            said.append(repr(sorted(entry.items())))
    return said[::-1]


def _read_alike(spark: SparkSession, owner: Owner) -> Iterator[str]:
    """Spark and DuckDB read what delta-rs reads."""
    with connect(owner.settings.lake) as analyst:
        for table in owner.flow.tables():
            names = [name for name in table.schema.names if not name.startswith("_")]
            mine = contents(table.read(names))
            by_spark = spark.read.format("delta").load(str(table.path)).select(*(f"`{name}`" for name in names))
            yield from _told(f"Spark reads {table.name}", mine, contents(_cast(by_spark.toArrow(), table)))
            listed = ", ".join(f'"{name}"' for name in names)
            by_duck = analyst.arrow(f"select {listed} from {table.name}")
            yield from _told(f"DuckDB reads {table.name}", mine, contents(_cast(by_duck, table)))


def _cast(rows: pa.Table, table: OwnedTable) -> pa.Table:
    return rows.cast(pa.schema([table.schema.field(name) for name in rows.column_names]))


def _as_batch(spark: SparkSession, owner: Owner) -> Iterator[str]:
    """Each transform over all its inputs at once gives what the stream has put together."""
    for declared in owner.catalog.tables.values():
        if declared.transform is None:
            continue
        inputs = {name: owner.flow.inputs[name].table.read() for name in declared.inputs}
        if declared.table.late is not None:
            after = declared.table.late.after // timedelta(microseconds=1)
            inputs = {name: rows.filter(pc.less_equal(rows["_late_by"], after)) for name, rows in inputs.items()}
        frames = {
            name: spark.createDataFrame(rows.select([one for one in rows.column_names if not one.startswith("_")]))
            for name, rows in inputs.items()
        }
        table = owner.flow.inputs[declared.name].table
        computed = as_arrow(load_transform(declared)(**by_short_name(frames)))
        yield from _told(f"batch of {table.name}", contents(table.read()), contents(sound(computed, table.schema)))


def _books(owners: dict[str, Owner]) -> Iterator[str]:
    for way, owner in owners.items():
        for sheet in owner.ledger().sheets():
            if sheet.verdict != "ok":
                yield f"{way}: ledger of {sheet.table}: {sheet.verdict}"


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    settings = Settings.load(ROOT, environment={}, data=folder)
    spark = open_session(name="differential", settings=settings, app=AppSettings(), brief=True)
    try:
        yield spark
    finally:
        spark.stop()


def main(arguments: Sequence[str]) -> int:
    """Try many seeds; 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description="Hold the commit paths together.")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    asked = parser.parse_args(arguments)
    if asked.seeds < 1:
        parser.error("--seeds: one at least, else nothing is tried")
    wrong = list[int]()
    with tempfile.TemporaryDirectory(prefix="differential-") as folder, _session(Path(folder) / "spark") as spark:
        for seed in range(asked.first, asked.first + asked.seeds):
            found = differences(spark, Path(folder) / str(seed), seed)
            wrong += [seed] if found else []
            out.print("\n".join(found) or "alike", markup=False, soft_wrap=True)
    out.print(f"seeds that differ: {wrong or 'none'}", markup=False)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
