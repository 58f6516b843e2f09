"""Page views of the web shop. One row per event."""

from deltaworks.words import Column, Table, append, hours, json

TABLE = Table(
    app="web",
    reads=json("bronze.web_events", topic="page_views"),
    kept_as=append(dedupe_by=("event_id",), within=hours(1)),
    columns=(
        Column("event_id", "string", null=False, doc="Given by the page; the same in every copy of the event."),
        Column("event_time", "timestamp", null=False, doc="When the page was opened, UTC, by the visitor's clock."),
        Column("user_id", "bigint", null=False, doc="Who looked."),
        Column("session_id", "string", null=False, doc="The visit it belongs to."),
        Column("page", "string", null=False, doc="Path of the page."),
        Column("referrer", "string", doc="Where the visitor came from, if known."),
        Column("arrived_at", "timestamp", wire="arrival", doc="When it came to the shop, UTC; null in older rows."),
    ),
    event_time="event_time",
    subject="user_id",
    owner="web analytics",
    keep_days=760,
)
