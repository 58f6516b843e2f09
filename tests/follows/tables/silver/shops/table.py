"""Shops, while their source changes its columns."""

from deltaworks.words import Column, Table, debezium, keep, latest

TABLE = Table(
    app="feed",
    reads=debezium("bronze.changes", table="public.shops", unknown_fields=keep("rest")),
    kept_as=latest(keys=("shop",)),
    columns=(
        Column("shop", "string", null=False, doc="Key."),
        Column("title", "string", null=False, previously="name", doc="What it is called."),
        Column("visits", "int", null=False, doc="A count."),
        Column("city", "string", doc="Where it is, if known."),
        Column("rest", "string", doc="Columns that the source has beyond."),
    ),
    owner="tests",
)
