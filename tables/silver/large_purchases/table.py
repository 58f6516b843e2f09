"""Purchases of more than 100 euros as the pages report them. One row per purchase."""

from deltaworks.words import Column, Table, append, events, hours, json

TABLE = Table(
    app="web",
    reads=json("bronze.web_events", topic="purchases"),
    kept_as=append(dedupe_by=("purchase_id",), within=hours(1)),
    columns=(
        Column("purchase_id", "string", null=False, doc="Given by the page; the same in every copy of the event."),
        Column("bought_at", "timestamp", null=False, doc="When it happened, UTC, by the visitor's clock."),
        Column("user_id", "bigint", null=False, doc="Who bought."),
        Column("amount", "decimal(12,2)", null=False, doc="What was paid, in euros; more than 100."),
    ),
    only="amount > 100",
    publishes=events("large_purchases", key=("user_id",)),
    event_time="bought_at",
    subject="user_id",
    owner="web analytics",
    keep_days=760,
)
