"""Rows that leave their keys, on the Spark path and on both in turn: as by Arrow (tests/unit/test_full_rows.py)."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.checker import Picture, check
from tests.chance import seeded
from tests.customers import in_batches, shuffled
from tests.flows import Log, Owner
from tests.full_rows import goods, kept, lived


@pytest.mark.by_spark
def test_rows_that_leave_their_keys_are_there_once_on_both_paths(spark: SparkSession, tmp_path: Path) -> None:
    """In order and at once on the Arrow path; shuffled with copies, twice by Spark and once by Arrow."""
    chance = seeded()
    source = lived(chance, 80, keyed=True)
    calm, mixed = (Owner(spark, goods(tmp_path / name, keyed=True), "tiny") for name in ("calm", "mixed"))
    in_batches(calm, [source.log])
    log = Log()
    for path, part in zip(
        chance.sample(("spark", "spark", "auto"), 3), shuffled(chance, source.log, cuts=3), strict=True
    ):
        mixed.path = path
        mixed.start()
        log.send(part)
        mixed.take(log.batch())

    assert calm.rows("silver.goods_then") == mixed.rows("silver.goods_then")
    assert kept(calm.rows("silver.goods")) == kept(mixed.rows("silver.goods")) == source.there() != []
    assert calm.verdicts() == mixed.verdicts() == {"ok"}
    with Picture(mixed.catalog, mixed.settings.lake) as picture:
        assert not check(picture, at_rest=False)
