"""One row per key, with a large text."""

from deltaworks.words import Column, Table, debezium, latest

TABLE = Table(
    app="changes",
    reads=debezium("bronze.changes", table="public.wide"),
    kept_as=latest(keys=("id",)),
    columns=(
        Column("id", "bigint", null=False, doc="Key."),
        Column("n", "int", null=False, doc="A number."),
        Column("body", "string", null=False, doc="A large text."),
    ),
    owner="tests",
)
