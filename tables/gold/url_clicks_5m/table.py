"""Clicks on search results per URL and five minutes (a tumbling window)."""

from deltaworks.words import Column, Table, add, aggregate, correct, minutes

TABLE = Table(
    app="web",
    reads="silver.search_clicks",
    kept_as=aggregate(keys=("url", "since"), combine={"clicks": add}),
    late=correct(after=minutes(10)),
    columns=(
        Column("url", "string", null=False, doc="Path that was clicked."),
        Column("since", "timestamp", null=False, doc="Start of the five minutes, UTC."),
        Column("clicks", "bigint", null=False, doc="Clicks in them."),
    ),
    event_time="since",
    owner="web analytics",
    keep_days=730,
)
