"""Clicks on advertisements. One row per click."""

from deltaworks.words import Column, Table, append, hours, json

TABLE = Table(
    app="web",
    reads=json("bronze.web_events", topic="ad_clicks"),
    kept_as=append(dedupe_by=("click_id",), within=hours(1)),
    columns=(
        Column("click_id", "string", null=False, doc="Given by the page; the same in every copy of the event."),
        Column("clicked_at", "timestamp", null=False, doc="When it happened, UTC, by the visitor's clock."),
        Column("impression_id", "string", null=False, doc="The impression that was clicked."),
        Column("ad_id", "string", null=False, doc="The advertisement."),
        Column("user_id", "bigint", null=False, doc="Who clicked."),
    ),
    event_time="clicked_at",
    subject="user_id",
    owner="web analytics",
    keep_days=760,
)
