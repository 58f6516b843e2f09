"""The slice as tutorials write it: three streaming queries in one driver, each over the Delta table of the one before.

    Kafka -> bronze (Delta sink) -> parse -> silver (Delta sink) -> foreachBatch MERGE -> gold

Plain Spark and Delta with every plain setting that helps; bench/README.md lists them. No deltaworks in here.
"""

import argparse
import signal
import threading
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

_EVENT = "event_id string, event_time timestamp, user_id bigint, session_id string, page string, referrer string"
_BRONZE = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
_GOLD = "page string, minute timestamp, views bigint"


def main() -> None:
    """Start the three queries and run them until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--jars", type=Path, required=True)
    parser.add_argument("--memory", default="1g")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--trigger-seconds", type=float, default=0.5)
    parser.add_argument("--dedupe", action="store_true", help="drop copies within an hour, as the product does")
    given = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    spark = _session(jars=given.jars, memory=given.memory, cores=given.cores)
    chain = Chain(spark, lake=given.lake, trigger_seconds=given.trigger_seconds)
    queries = [
        chain.bronze(bootstrap=given.bootstrap, topic=given.topic),
        chain.silver(dedupe=given.dedupe),
        chain.gold(),
    ]
    while not stopping.wait(0.5):
        for query in queries:
            if (error := query.exception()) is not None:
                raise error
    for query in queries:
        query.stop()
    spark.stop()


class Chain:
    """The three queries."""

    def __init__(self, spark: SparkSession, *, lake: Path, trigger_seconds: float) -> None:
        """Create the three tables."""
        self.spark, self.lake = spark, lake
        self.trigger = f"{int(trigger_seconds * 1000)} milliseconds"
        for layer, columns in (("bronze", _BRONZE), ("silver", _EVENT), ("gold", _GOLD)):
            spark.sql(f"create table if not exists delta.`{self._path(layer)}` ({columns}) using delta")

    def bronze(self, *, bootstrap: str, topic: str) -> StreamingQuery:
        """Kafka's rows as they came."""
        self._pool("bronze")
        source = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        rows = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
        return self._sink(rows.drop("timestampType"), "bronze")

    def silver(self, *, dedupe: bool) -> StreamingQuery:
        """The events, parsed."""
        self._pool("silver")
        rows = self.spark.readStream.format("delta").load(self._path("bronze"))
        events = rows.select(F.from_json(F.col("value").cast("string"), _EVENT).alias("event")).select("event.*")
        events = events.where("event_id is not null and event_time is not null")
        if dedupe:
            events = events.withWatermark("event_time", "1 hour").dropDuplicatesWithinWatermark(["event_id"])
        return self._sink(events, "silver")

    def gold(self) -> StreamingQuery:
        """Views per page and minute, merged."""
        self._pool("gold")
        gold = DeltaTable.forPath(self.spark, self._path("gold"))

        def merge(batch: DataFrame, _batch_id: int) -> None:
            minutes = batch.groupBy("page", F.date_trunc("minute", "event_time").alias("minute"))
            counted = minutes.agg(F.count("*").alias("views"))
            (
                gold.alias("t")
                .merge(counted.alias("s"), "t.page = s.page and t.minute = s.minute")
                .whenMatchedUpdate(set={"views": "t.views + s.views"})
                .whenNotMatchedInsertAll()
                .execute()
            )

        rows = self.spark.readStream.format("delta").load(self._path("silver"))
        writer = rows.writeStream.foreachBatch(merge).queryName("gold")
        writer = writer.option("checkpointLocation", self._checkpoint("gold"))
        return writer.trigger(processingTime=self.trigger).start()

    def _sink(self, rows: DataFrame, layer: str) -> StreamingQuery:
        writer = rows.writeStream.format("delta").queryName(layer).outputMode("append")
        writer = writer.option("checkpointLocation", self._checkpoint(layer))
        return writer.trigger(processingTime=self.trigger).start(self._path(layer))

    def _pool(self, name: str) -> None:
        """The query started next gets its share of the cores, whatever the others do."""
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)

    def _path(self, layer: str) -> str:
        return str(self.lake / layer)

    def _checkpoint(self, layer: str) -> str:
        return str(self.lake / "_checkpoints" / layer)


def _session(*, jars: Path, memory: str, cores: int) -> SparkSession:
    options = {
        "spark.driver.extraClassPath": ":".join(str(jar) for jar in sorted(jars.glob("*.jar"))),
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),  # default 200: seconds in each small batch
        "spark.databricks.delta.snapshotPartitions": str(cores),  # default 50: the same for Delta's own queries
        "spark.scheduler.mode": "FAIR",  # three queries share the cores
    }
    builder = SparkSession.builder.appName("chained").master(f"local[{cores}]")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


if __name__ == "__main__":
    main()
