"""Who buys much at once: large purchases per user and day. One row per day and user."""

from deltaworks.words import Column, Table, add, aggregate

TABLE = Table(
    app="shop",
    reads="silver.published_purchases",
    kept_as=aggregate(keys=("day", "user_id"), combine={"purchases": add, "amount": add}),
    columns=(
        Column("day", "date", null=False, doc="Day of the purchase, UTC."),
        Column("user_id", "bigint", null=False, doc="Who bought."),
        Column("purchases", "bigint", null=False, doc="Purchases above 100 euros."),
        Column("amount", "decimal(18,2)", null=False, doc="Their sum, in euros."),
    ),
    event_time="day",
    subject="user_id",
    owner="sales",
    keep_days=390,
)
