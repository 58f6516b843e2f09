"""Sessions map the classes that set-up has archived."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.java import CLASS_ARCHIVE
from deltaworks.settings import ROOT

MADE = ROOT / ".jars" / CLASS_ARCHIVE


@pytest.mark.skipif(not MADE.is_file(), reason="this machine's Java archives no classes; set-up has said so")
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what a process has mapped")
def test_archive_of_set_up_is_in_use(spark: SparkSession) -> None:
    """Java goes without one that does not fit its jars, and says nothing."""
    jvm = spark._jvm
    assert jvm is not None

    pid = jvm.ProcessHandle.current().pid()

    assert str(MADE) in Path(f"/proc/{pid}/maps").read_text()
