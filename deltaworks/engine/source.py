"""Kafka as the engine reads it: one source per topic, from the ledger's positions, committed rows only."""

import json
from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.engine.broker import Edge
from deltaworks.engine.clocks import BY_PRODUCER
from deltaworks.engine.entry import Position
from deltaworks.engine.same_log import made_anew

BRONZE = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("_seq", pa.int64()),
    ]
)
"""What bronze keeps: Kafka's bytes and coordinates, the time of arrival, and the ingest batch."""

FETCH_WAIT_MS_MAX = 10
"""So long a broker waits for more; Spark asks for what is there already."""
_CREATE_TIME = 0  # Kafka's number of it


def start_from(position: Position, edges: Mapping[str, Mapping[str, Edge]]) -> Position:
    """Where reading goes on, with what the broker no longer has noted as lost.

    Raises SourceError when a topic ends before the position, or begins before one of which nothing was read: it was
    deleted and made anew. Whether what is below the position is what was read is told by `same_log`.
    """
    offsets = {topic: dict(parts) for topic, parts in position.offsets.items()}
    first = {topic: dict(parts) for topic, parts in position.first.items()}
    lost = {topic: dict(parts) for topic, parts in position.lost.items()}
    for topic, parts in edges.items():
        for partition, upto in position.offsets.get(topic, {}).items():
            if partition in parts:
                continue
            if upto > first.get(topic, {}).get(partition, 0):
                raise made_anew(f"topic {topic} partition {partition}", f"is gone, the ledger has read up to {upto}")
            del offsets[topic][partition]  # Spark takes offsets of partitions that there are, and of no others
        for partition, edge in parts.items():
            if partition not in offsets.setdefault(topic, {}):  # one that was added meanwhile was read from 0 on
                first.setdefault(topic, {}).setdefault(partition, edge.low)
            now = offsets[topic].setdefault(partition, edge.low)
            if edge.low < now == first.get(topic, {}).get(partition, 0):
                finding = f"begins at offset {edge.low}, it began at {now} and nothing of it was read"
                raise made_anew(f"topic {topic} partition {partition}", finding)
            if now > edge.high:
                finding = f"ends at offset {edge.high}, the ledger has read up to {now}"
                raise made_anew(f"topic {topic} partition {partition}", finding)
            if now < edge.low:
                parts_lost = lost.setdefault(topic, {})
                parts_lost[partition] = parts_lost.get(partition, 0) + edge.low - now
                offsets[topic][partition] = edge.low
    return Position(offsets=offsets, first=first, rows=position.rows, lost=lost)


def open_stream(
    spark: SparkSession, *, bootstrap: str, offsets: Mapping[str, Mapping[str, int]], rows_per_batch_max: int
) -> DataFrame:
    """One streaming DataFrame over all topics; each topic has a source and a rate limit of its own."""
    return reduce(
        DataFrame.unionByName,
        [_topic(spark, bootstrap, topic, parts, rows_per_batch_max) for topic, parts in sorted(offsets.items())],
    )


def _topic(
    spark: SparkSession, bootstrap: str, topic: str, parts: Mapping[str, int], rows_per_batch_max: int
) -> DataFrame:
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")  # Debezium writes transactions
        # A broker answers one request of a connection after the other. Spark asks for a partition's ends after each
        # fetch, behind the consumer's next one, for which a broker waits half a second where nothing has come yet.
        .option("kafka.fetch.max.wait.ms", FETCH_WAIT_MS_MAX)
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: dict(parts)}))
        .option("maxOffsetsPerTrigger", rows_per_batch_max)
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .load()
    )
    told = (F.col("timestampType") == _CREATE_TIME).alias(BY_PRODUCER)
    return source.select("topic", "partition", "offset", F.col("timestamp"), "key", "value", "headers", told)
