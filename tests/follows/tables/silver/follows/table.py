"""Who follows which shop, by the database's log."""

from deltaworks.words import Column, Table, debezium, latest

TABLE = Table(
    app="feed",
    reads=debezium("bronze.changes", table="public.follows"),
    kept_as=latest(keys=("member", "shop")),
    columns=(
        Column("member", "string", null=False, doc="Who follows."),
        Column("shop", "string", null=False, doc="Whom."),
        Column("since", "timestamp", null=False, doc="Since when, UTC."),
    ),
    owner="tests",
)
