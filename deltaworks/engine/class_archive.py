"""Spark's classes, archived once by set-up: a JVM maps them into its memory instead of loading them one by one.

    python -m deltaworks.engine.class_archive TO

Java checks that an archive is of the same Java and the same jars, and goes without one that is not. Sessions at work on
one machine share what they map. Source: "Class Data Sharing" in the Java platform's guide to the virtual machine.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltaworks.engine.session import open_session
from deltaworks.settings import ROOT, AppSettings, Settings

_ROWS = 8


def main(to: Path) -> int:
    """Write the archive when a JVM ends that has done what apps do; 1 if this Java writes none."""
    made = to.with_suffix(".new")
    made.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="deltaworks-classes-", ignore_cleanup_errors=True) as folder:
        settings = Settings.load(ROOT, data=Path(folder))
        spark = open_session(name="classes", settings=settings, app=AppSettings(), brief=True, archive_to=made)
        _work(spark, Path(folder))
        gateway = spark.sparkContext._gateway  # noqa: SLF001  # PySpark waits for its JVM nowhere
        assert gateway is not None
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with it
        gateway.proc.wait()
    if not made.is_file():
        return 1
    made.replace(to)
    return 0


def _work(spark: SparkSession, folder: Path) -> None:
    """What loads most of the classes that an app needs until its first commit: reads, joins, windows, a merge."""
    table, other = str(folder / "table"), str(folder / "other")
    rows = spark.range(_ROWS).select("id", (F.col("id") % 2).alias("part"), F.current_timestamp().alias("at"))
    for path in (table, other):
        rows.write.format("delta").partitionBy("part").save(path)
    ids = spark.read.format("delta").load(other).select("id")
    spark.read.format("delta").load(table).join(ids, "id").groupBy(F.window("at", "1 hour")).count().toArrow()
    spark.createDataFrame(rows.toArrow()).createOrReplaceTempView("source")
    spark.sql(
        f"merge into delta.`{table}` t using source s on t.id = s.id and t.part = s.part "
        "when matched then update set * when not matched then insert *"
    )


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        sys.exit(main(Path(sys.argv[1])))
