"""Tables in parts by Spark: a merge opens the parts of its keys alone."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from deltaworks.engine.commit import Committer, Merge
from deltaworks.engine.entry import Counts
from tests.unit.test_partitions import DAY, SCHEMA, UPSERT, found, owned, put


def test_merge_by_spark_opens_the_parts_of_its_keys_alone(spark: SparkSession, tmp_path: Path) -> None:
    """The files of the days between are gone: whoever opened them would fail."""
    table = owned(tmp_path, DAY)
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 31)]
    put(table, [("x", at, number) for number, at in enumerate(days)])
    between = [path for path in (tmp_path / "cities").glob("_day_of_at=*") if path.name[-2:] not in ("01", "30")]
    for path in between:
        path.rename(tmp_path / path.name)
    rows = pa.table([["y", "y"], [days[0], days[-1]], [100, 101]], schema=SCHEMA)
    by_spark = Committer(spark=spark, arrow_bytes_max=0, guard=lambda: None)

    entry = table.entry.follow("batch", counts=Counts(read=2, taken=2))
    by_spark.commit(table, rows, entry, how=Merge(keys=("at",), clauses=UPSERT))

    assert table.delta.history(1)[0]["engineInfo"].startswith("Apache-Spark")
    for path in between:
        (tmp_path / path.name).rename(path)
    assert len(between) == 28
    assert found(table) == [("x", at, number) for number, at in enumerate(days) if 0 < number < 29] + [
        ("y", days[0], 100),
        ("y", days[-1], 101),
    ]
