"""One row per key; `added` is a column that the source has only at times."""

from deltaworks.words import Column, Table, debezium, latest

TABLE = Table(
    app="changes",
    reads=debezium("bronze.changes", table="public.plain"),
    kept_as=latest(keys=("id",)),
    columns=(
        Column("id", "bigint", null=False, doc="Key."),
        Column("n", "int", null=False, doc="A number."),
        Column("amount", "decimal(12,2)", doc="An amount, if known."),
        Column("note", "string", null=False, doc="A text."),
        Column("at", "timestamp", null=False, doc="When it was changed, UTC."),
        Column("added", "int", doc="A column that came later."),
    ),
    owner="tests",
)
