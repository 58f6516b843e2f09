"""What the JVM of a driver writes says that a row could not be computed, and quotes none."""

from pathlib import Path

from tests.own_session import run_with_session

VALUE = "ann@home.example"
PROGRAM = f"""
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

rows = spark.range(3).select(F.concat(F.lit("{VALUE}"), F.col("id")).cast("bigint").alias("number"))
for act in (rows.collect, lambda: rows.write.format("delta").save(str(Path(sys.argv[1]) / "table"))):
    try:
        act()
    except (PySparkException, Py4JJavaError) as error:
        print("{VALUE}" in str(error))
spark.stop()
"""


def test_no_value_of_a_row_is_in_the_log(tmp_path: Path) -> None:
    """Of a task that fails, and of a write that fails with it."""
    done = run_with_session(PROGRAM, tmp_path)

    assert done.stdout.split() == ["True", "True"]
    assert "ERROR Executor Exception in task" in done.stderr
    assert VALUE not in done.stderr
