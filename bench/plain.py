"""Page views of a range in a plain batch job by Spark, bronze → silver → gold, by the product's parser and transforms.

    python bench/plain.py --project DIR --lake LAKE --to FOLDER --since 2026-11-22T10:00Z --until 2026-11-22T11:00Z

What a data engineer would write to compute a range again who has the transforms and no `backfill`: it reads bronze's
rows that arrived in the range, parses, drops copies, writes silver, and from that the two gold tables. Nothing of the
live lake is compared, replaced or told. The last line it prints is the number of rows of bronze that it has read.
"""

import argparse
from datetime import datetime
from pathlib import Path

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from deltaworks import catalog, suites
from deltaworks.engine.parse import Timely, parser
from deltaworks.engine.schemas import spark_schema
from deltaworks.engine.session import open_session
from deltaworks.engine.transforms import load_transform
from deltaworks.quality.compiling import rules_of
from deltaworks.settings import AppSettings, Settings
from deltaworks.words.reading import Json

SILVER = "silver.page_views"
GOLD = ("gold.page_views_per_minute", "gold.user_sessions")
_COPIES = ("event_id",)


def main() -> None:
    """Read, parse, drop copies, write silver and gold."""
    given = argparse.ArgumentParser(description=__doc__)
    for name in ("--project", "--lake", "--to"):
        given.add_argument(name, type=Path, required=True)
    for name in ("--since", "--until"):
        given.add_argument(name, type=datetime.fromisoformat, required=True)
    run(given.parse_args())


def run(given: argparse.Namespace) -> None:
    """The job."""
    settings = Settings.load(given.project, environment={}, data=given.to)
    found = catalog.load(settings.project)
    silver = found[SILVER]
    assert isinstance(silver.table.reads, Json)
    assert silver.suite is not None
    assert silver.table.event_time is not None
    suite = suites.load(silver.suite, table=SILVER, columns=[column.name for column in silver.columns])
    parse = parser(
        silver.table.reads,
        silver.table.columns,
        silver.keys,
        timely=Timely(column=silver.table.event_time, future_max=silver.table.future_max),
        rules=rules_of(suite, silver.columns, later=silver.implied),
    )
    spark = open_session(name="plain", settings=settings, app=AppSettings())
    bronze = spark.read.format("delta").load(str(given.lake / "bronze" / "web_events"))
    since, until = (F.lit(one) for one in (given.since, given.until))
    taken = bronze.where((F.col("timestamp") >= since) & (F.col("timestamp") < until))
    parsed = taken.mapInArrow(parse.batches, spark_schema(parse.schema)).where(F.col("_kind") == "row")
    first = Window.partitionBy(*_COPIES).orderBy("_topic", "_partition", "_offset")
    rows = parsed.withColumn("_nth", F.row_number().over(first)).where("_nth = 1")
    rows = rows.select(*(column.name for column in silver.columns))
    rows.write.format("delta").save(str(given.to / "silver"))
    views = spark.read.format("delta").load(str(given.to / "silver"))
    for name in GOLD:
        computed = load_transform(found[name])(page_views=views)
        computed.write.format("delta").save(str(given.to / name))
    print(taken.count())
    spark.stop()


if __name__ == "__main__":
    main()
