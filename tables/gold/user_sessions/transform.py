"""Page views to visits."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(page_views: DataFrame) -> DataFrame:
    """Put the views of a user together while they are no more than ten minutes apart."""
    in_order = F.struct("event_time", "event_id", "page")  # the id decides between views of one moment
    visits = page_views.groupBy("user_id", F.session_window("event_time", "10 minutes").alias("visit")).agg(
        F.count("*").alias("views"),
        F.count_distinct("page").alias("pages"),
        F.min(in_order).alias("first"),
        F.max(in_order).alias("last"),
    )
    return visits.select(
        "user_id",
        F.col("visit.start").alias("session_start"),
        F.col("visit.end").alias("session_end"),
        "views",
        "pages",
        F.col("first.page").alias("landing_page"),
        F.col("last.page").alias("exit_page"),
    )
