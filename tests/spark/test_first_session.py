"""A session starts without what Spark ML adds, and has it as soon as it is asked for."""

from pyspark.ml.feature import VectorAssembler
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltaworks.engine.spark.internals import scala_object

_PROVIDERS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"


def test_functions_of_ml_are_there_when_they_are_asked_for(spark: SparkSession) -> None:
    """They are added when something of ML is found, by its functions and by what computes with them."""
    before = _names(spark)
    rows = spark.createDataFrame([([1.0, 2.0],)], "a array<double>")

    vectors = rows.select(array_to_vector(F.col("a")).alias("v"))
    wide = VectorAssembler(inputCols=["v", "n"], outputCol="w").transform(vectors.withColumn("n", F.lit(3)))

    assert "vector_to_array" not in before
    assert [list(row.a) for row in wide.select(vector_to_array(F.col("w")).alias("a")).collect()] == [[1.0, 2.0, 3.0]]


def _names(spark: SparkSession) -> str:
    assert spark._jvm is not None
    known = scala_object(spark._jvm, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry").internal()
    return str(known.listFunction().mkString(" "))


def test_nobody_else_adds_anything_to_sessions(spark: SparkSession) -> None:
    """A jar that adds something to sessions by itself is passed over, like ML's: it is to be named in the settings."""
    jvm = spark._jvm
    assert jvm is not None

    found = jvm.Thread.currentThread().getContextClassLoader().getResources(_PROVIDERS)

    assert ["spark-mllib" in str(one) for one in jvm.java.util.Collections.list(found)] == [True]
