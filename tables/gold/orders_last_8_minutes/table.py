"""Orders of the last eight minutes, told every minute (a hopping window). One row per minute that has any."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="shop",
    reads="silver.orders",
    kept_as=view(keys=("until",)),
    columns=(
        Column("until", "timestamp", null=False, doc="End of the eight minutes, UTC, not included."),
        Column("orders", "bigint", null=False, doc="Orders placed in them."),
        Column("cancelled", "bigint", null=False, doc="Of these, cancelled by now."),
        Column("amount", "decimal(18,2)", null=False, doc="Sum of those that are not cancelled, in euros."),
    ),
    event_time="until",
    owner="sales",
)
