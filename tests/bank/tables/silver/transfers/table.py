"""Money that changed hands. One row per transfer."""

from deltaworks.words import Column, Table, debezium, latest

TABLE = Table(
    app="bank",
    reads=debezium("bronze.changes", table="public.transfers"),
    kept_as=latest(keys=("transfer_id",)),
    columns=(
        Column("transfer_id", "bigint", null=False, doc="Counted from 1 on."),
        Column("giver", "int", null=False, doc="Account that gives."),
        Column("taker", "int", null=False, doc="Account that takes."),
        Column("amount", "decimal(12,2)", null=False, doc="How much, in euros."),
    ),
    owner="tests",
)
