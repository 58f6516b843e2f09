"""One row per pair of keys."""

from deltaworks.words import Column, Table, debezium, latest

TABLE = Table(
    app="changes",
    reads=debezium("bronze.changes", table="public.pairs"),
    kept_as=latest(keys=("a", "b")),
    columns=(
        Column("a", "int", null=False, doc="First key."),
        Column("b", "string", null=False, doc="Second key."),
        Column("n", "int", null=False, doc="A number."),
    ),
    owner="tests",
)
