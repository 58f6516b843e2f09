"""Advertisements that were shown. One row per impression."""

from deltaworks.words import Column, Table, append, hours, json

TABLE = Table(
    app="web",
    reads=json("bronze.web_events", topic="ad_impressions"),
    kept_as=append(dedupe_by=("impression_id",), within=hours(1)),
    columns=(
        Column("impression_id", "string", null=False, doc="Given by the page; the same in every copy of the event."),
        Column("shown_at", "timestamp", null=False, doc="When it was shown, UTC, by the visitor's clock."),
        Column("ad_id", "string", null=False, doc="The advertisement."),
        Column("user_id", "bigint", null=False, doc="Who saw it."),
    ),
    event_time="shown_at",
    subject="user_id",
    owner="web analytics",
    keep_days=760,
)
