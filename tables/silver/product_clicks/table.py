"""Clicks on search results that lead to a product. One row per click; app web reads the same topic for its own ends."""

from deltaworks.words import Column, Table, append, hours, json

TABLE = Table(
    app="shop",
    reads=json("bronze.shop_events", topic="search_clicks"),
    kept_as=append(dedupe_by=("click_id",), within=hours(1)),
    columns=(
        Column("click_id", "string", null=False, doc="Given by the page; the same in every copy of the event."),
        Column("clicked_at", "timestamp", null=False, doc="When it happened, UTC, by the visitor's clock."),
        Column("user_id", "bigint", null=False, doc="Who clicked: a customer, or a visitor without account."),
        Column("url", "string", null=False, doc="Path that the click led to."),
        Column("arrived_at", "timestamp", wire="arrival", doc="When it came here, UTC; null in older rows."),
    ),
    event_time="clicked_at",
    subject="user_id",
    owner="sales",
    keep_days=400,
)
