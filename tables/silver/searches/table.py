"""Searches in the shop. One row per search."""

from deltaworks.words import Column, Table, append, hours, json

TABLE = Table(
    app="web",
    reads=json("bronze.web_events", topic="searches"),
    kept_as=append(dedupe_by=("search_id",), within=hours(1)),
    columns=(
        Column("search_id", "string", null=False, doc="Given by the page; the same in every copy of the event."),
        Column("searched_at", "timestamp", null=False, doc="When it was sent, UTC, by the visitor's clock."),
        Column("session_id", "string", null=False, doc="The visit it belongs to."),
        Column("user_id", "bigint", null=False, doc="Who searched."),
        Column("term", "string", null=False, doc="What was searched for, in lower case."),
    ),
    event_time="searched_at",
    subject="user_id",
    owner="web analytics",
    keep_days=760,
)
