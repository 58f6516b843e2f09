"""What visitors asked their carts to do. One row per command; whether it was possible is told by cart_events."""

from deltaworks.words import Column, Table, append, hours, json

TABLE = Table(
    app="shop",
    reads=json("bronze.shop_events", topic="cart_commands"),
    kept_as=append(dedupe_by=("command_id",), within=hours(1)),
    columns=(
        Column("command_id", "string", null=False, doc="Given by the page; the same in every copy of the command."),
        Column("given_at", "timestamp", null=False, doc="When it was given, UTC, by the visitor's clock."),
        Column("cart_id", "string", null=False, doc="The cart. One that nobody touched for a day is not used again."),
        Column("user_id", "bigint", null=False, doc="Whose cart it is."),
        Column("command", "string", null=False, doc="add, remove, change_quantity or check_out."),
        Column("product_id", "bigint", doc="Which product; null when checking out."),
        Column("quantity", "int", doc="Pieces to add, or to be there from now on; null otherwise."),
    ),
    event_time="given_at",
    subject="user_id",
    owner="sales",
    keep_days=400,
)
