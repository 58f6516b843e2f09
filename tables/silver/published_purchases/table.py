"""Large purchases as app web publishes them: a stream made of a stream, read like any other. One row per purchase."""

from deltaworks.words import Column, Table, append, days, json

TABLE = Table(
    app="shop",
    reads=json("bronze.shop_events", topic="large_purchases"),
    kept_as=append(dedupe_by=("purchase_id",), within=days(400)),
    columns=(
        Column("purchase_id", "string", null=False, doc="Given by the page."),
        Column("bought_at", "timestamp", null=False, doc="When it happened, UTC, by the visitor's clock."),
        Column("user_id", "bigint", null=False, doc="Who bought."),
        Column("amount", "decimal(12,2)", null=False, doc="What was paid, in euros; more than 100."),
    ),
    event_time="bought_at",
    subject="user_id",
    owner="sales",
    keep_days=400,
)
