"""What the JVM of a driver writes says that a row could not be computed, and quotes none."""

import subprocess
import sys
from pathlib import Path

from deltaworks.settings import ROOT

VALUE = "ann@home.example"
PROGRAM = f"""
import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from deltaworks.engine.session import open_session
from deltaworks.settings import ROOT, AppSettings, Settings

settings = Settings.load(ROOT, environment={{}}, data=Path(sys.argv[1]))
spark = open_session(name="log", settings=settings, app=AppSettings())
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
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    assert done.stdout.split() == ["True", "True"]
    assert "ERROR Executor Exception in task" in done.stderr
    assert VALUE not in done.stderr
