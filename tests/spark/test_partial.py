"""Partial changes by Spark: a batch that is too large to collect is folded to the same table, through a restart."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.chance import seeded
from tests.flows import Log, Owner
from tests.source_table import lived, people


def test_spark_folds_as_arrow_does(spark: SparkSession, tmp_path: Path) -> None:
    """Shuffled, with copies, over batches and a restart, then equal to the source, and the books balance."""
    chance = seeded()
    source = lived(chance, 26, keys=4)
    source.insert(9, city="x", bio="b9", cv="v9")
    source.update(9, city="y")
    records = chance.sample(source.log, len(source.log)) + chance.sample(source.log, 5)
    owner, log = Owner(spark, people(tmp_path), "tiny", path="spark", only=("silver.people",)), Log()

    for start in range(0, len(records), 20):
        log.send(records[start : start + 20])
        owner.take(log.batch())
        if start == 0:
            owner.start()

    assert owner.rows("silver.people") == sorted(source.rows.values(), key=str)
    assert owner.verdicts() == {"ok"}
