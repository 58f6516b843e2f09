"""Searches with the first click on a result within an hour, by visit. One row per search, without a click too."""

from deltaworks.words import Column, Table, correct, hours, minutes, stateful

TABLE = Table(
    app="web",
    reads=("silver.searches", "silver.search_clicks"),
    kept_as=stateful(
        keys=("session_id", "searched_at", "search_id"), part=("session_id",), reach=hours(1), closes="waits_until"
    ),
    late=correct(after=minutes(10)),
    columns=(
        Column("session_id", "string", null=False, doc="The visit."),
        Column("searched_at", "timestamp", null=False, doc="When it was searched, UTC."),
        Column("search_id", "string", null=False, doc="The search."),
        Column("term", "string", null=False, doc="What was searched for."),
        Column("clicks", "bigint", null=False, doc="Clicks on its results within an hour."),
        Column("clicked_at", "timestamp", doc="The first of them, UTC."),
        Column("url", "string", doc="Where the first one led."),
        Column(
            "waits_until",
            "timestamp",
            null=False,
            doc="An hour after the search, UTC: the last moment at which a click counts.",
        ),
        Column("complete", "boolean", null=False, doc="Whether all clicks that are in time have been counted."),
    ),
    event_time="searched_at",
    owner="web analytics",
    keep_days=730,
)
