"""Doubles that Spark has committed are found as those of delta-rs are."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.commit import Committer
from tests.doubles import MERGE, SETS, hidden, owned, put


@pytest.mark.by_spark
def test_doubles_that_spark_committed_are_found(spark: SparkSession, tmp_path: Path) -> None:
    """Its own log says other things of infinite values than delta-rs's."""
    by_spark = Committer(spark=spark, arrow_bytes_max=0, guard=lambda: None)
    for name, values in SETS.items():
        table = owned(tmp_path, name)
        put(table, by_spark, values)
        put(table, by_spark, values, MERGE)

    assert list(hidden(tmp_path)) == []
