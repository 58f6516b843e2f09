"""What became of each cart command: it happened, or why it was refused. One row per command."""

from deltaworks.words import Column, Table, correct, days, minutes, stateful

TABLE = Table(
    app="shop",
    reads="silver.cart_commands",
    kept_as=stateful(keys=("cart_id", "given_at", "command_id"), part=("cart_id",), gap=days(1)),
    late=correct(after=minutes(10)),
    columns=(
        Column("cart_id", "string", null=False, doc="The cart."),
        Column("given_at", "timestamp", null=False, doc="When the command was given, UTC."),
        Column(
            "since", "timestamp", null=False, doc="When the cart began: its first command after a day without, UTC."
        ),
        Column("command_id", "string", null=False, doc="The command."),
        Column("user_id", "bigint", null=False, doc="Whose cart it is."),
        Column("command", "string", null=False, doc="add, remove, change_quantity or check_out."),
        Column("product_id", "bigint", doc="Which product."),
        Column("quantity", "int", doc="Pieces of it in the cart after the command; null if refused or a check out."),
        Column("refused", "string", doc="Why it could not be done; null if it was done."),
    ),
    event_time="given_at",
    subject="user_id",
    owner="sales",
    keep_days=390,
)
