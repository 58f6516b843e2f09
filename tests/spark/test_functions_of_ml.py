"""A session starts without what Spark ML adds, and has it as soon as it is asked for."""

from pathlib import Path

from pyspark.ml.feature import VectorAssembler
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.own_session import run_with_session

_PROVIDERS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
_PROGRAM = """
from deltaworks.engine.spark.internals import scala_object

known = scala_object(spark._jvm, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry").internal()
for _ in range(2):
    print("vector_to_array" in known.listFunction().mkString(" "))
    spark._jvm.org.apache.spark.ml
"""


def test_functions_of_ml_are_there_when_they_are_asked_for(spark: SparkSession) -> None:
    """By its functions, and by what computes with them."""
    rows = spark.createDataFrame([([1.0, 2.0],)], "a array<double>")

    vectors = rows.select(array_to_vector(F.col("a")).alias("v"))
    wide = VectorAssembler(inputCols=["v", "n"], outputCol="w").transform(vectors.withColumn("n", F.lit(3)))

    assert [list(row.a) for row in wide.select(vector_to_array(F.col("w")).alias("a")).collect()] == [[1.0, 2.0, 3.0]]


def test_they_are_added_when_something_of_ml_is_looked_up_and_not_before(tmp_path: Path) -> None:
    """In a process of its own: in others somebody may have looked."""
    done = run_with_session(_PROGRAM, tmp_path)

    assert done.stdout.split() == ["False", "True"]


def test_nobody_else_adds_anything_to_sessions(spark: SparkSession) -> None:
    """A jar that adds something to sessions by itself is passed over, like ML's: it is to be named in the settings."""
    jvm = spark._jvm
    assert jvm is not None

    found = jvm.Thread.currentThread().getContextClassLoader().getResources(_PROVIDERS)

    assert ["spark-mllib" in str(one) for one in jvm.java.util.Collections.list(found)] == [True]
