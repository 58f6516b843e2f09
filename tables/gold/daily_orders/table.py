"""Orders and revenue per day, as of now: an order that is paid or cancelled later changes its day."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="shop",
    reads="silver.orders",
    kept_as=view(keys=("day",)),
    columns=(
        Column("day", "date", null=False, doc="Day the orders were placed, UTC."),
        Column("orders", "bigint", null=False, doc="Orders placed that day."),
        Column("paid", "bigint", null=False, doc="Of these, paid by now."),
        Column("cancelled", "bigint", null=False, doc="Of these, cancelled by now."),
        Column("revenue", "decimal(18,2)", null=False, doc="Amount of the paid ones, in euros."),
    ),
    event_time="day",
    owner="sales",
)
