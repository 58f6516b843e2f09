"""A session starts without what Spark ML adds, and has it as soon as it is asked for."""

from pyspark.ml.feature import VectorAssembler
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

_PROVIDERS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"


def test_functions_of_ml_are_there_when_they_are_asked_for(spark: SparkSession) -> None:
    """They are added when a name of ML is looked up, by its functions and by what computes with them."""
    rows = spark.createDataFrame([([1.0, 2.0],)], "a array<double>")

    vectors = rows.select(array_to_vector(F.col("a")).alias("v"))
    wide = VectorAssembler(inputCols=["v", "n"], outputCol="w").transform(vectors.withColumn("n", F.lit(3)))

    assert [list(row.a) for row in wide.select(vector_to_array(F.col("w")).alias("a")).collect()] == [[1.0, 2.0, 3.0]]


def test_nobody_else_adds_anything_to_sessions(spark: SparkSession) -> None:
    """A jar that adds something to each session by itself would be passed over: it is to be named in the settings."""
    jvm = spark._jvm
    assert jvm is not None

    found = jvm.Thread.currentThread().getContextClassLoader().getResources(_PROVIDERS)

    assert ["spark-mllib" in str(one) for one in jvm.java.util.Collections.list(found)] == [True]
