"""Cart commands that could not be done. One row per command, with the reason."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="shop",
    reads="silver.cart_events",
    kept_as=view(keys=("cart_id", "given_at", "command_id")),
    columns=(
        Column("command_id", "string", null=False, doc="The command."),
        Column("cart_id", "string", null=False, doc="The cart."),
        Column("user_id", "bigint", null=False, doc="Whose cart it is."),
        Column("given_at", "timestamp", null=False, doc="When it was given, UTC."),
        Column("command", "string", null=False, doc="What was asked for."),
        Column("product_id", "bigint", doc="Of which product."),
        Column("refused", "string", null=False, doc="Why it could not be done."),
    ),
    event_time="given_at",
    subject="user_id",
    owner="sales",
)
