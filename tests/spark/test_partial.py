"""Partial changes by Spark: a batch that is too large to collect is folded to the same table, through a restart."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.chance import seeded
from tests.flows import Log, Owner
from tests.source_table import KEPT, PEOPLE, lived, people


@pytest.mark.by_spark
@pytest.mark.parametrize("declared", [PEOPLE, KEPT], ids=["declared", "kept"])
def test_spark_folds_as_arrow_does(spark: SparkSession, tmp_path: Path, declared: str) -> None:
    """Shuffled, with copies, over batches and a restart, then equal to the source, and the books balance."""
    chance = seeded()
    source = lived(chance, 26, keys=4)
    source.insert(9, city="x", bio="b9", cv="v9")
    source.update(9, city="y")
    records = chance.sample(source.log, len(source.log)) + chance.sample(source.log, 5)
    owner, log = Owner(spark, people(tmp_path, declared), "tiny", path="spark", only=("silver.people",)), Log()

    for start in range(0, len(records), 20):
        log.send(records[start : start + 20])
        owner.take(log.batch())
        if start == 0:
            owner.start()

    found = [row | json.loads(row.pop("rest", None) or "{}") for row in owner.rows("silver.people")]
    assert sorted(found, key=str) == sorted(source.rows.values(), key=str)
    assert owner.verdicts() == {"ok"}
