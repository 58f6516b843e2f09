"""Plans that are kept hold no more after many batches. `python -m tests.direct --soak` sends many more."""

import sys

import pytest
from pyspark.sql import SparkSession

from tests.direct.soak import soak


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process holds")
def test_hundreds_of_batches_give_right_rows_and_leave_nothing(spark: SparkSession) -> None:
    """On several threads, beside ordinary jobs: memory, threads, descriptors, files and locks stay as many."""
    assert list(soak(spark, batches=600, plans=12)) == []
