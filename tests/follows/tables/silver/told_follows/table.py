"""Who follows which shop, by what the application told last."""

from deltaworks.words import Column, Table, json, latest

TABLE = Table(
    app="feed",
    reads=json("bronze.told", topic="told"),
    kept_as=latest(keys=("member", "shop")),
    columns=(
        Column("member", "string", null=False, doc="Who."),
        Column("shop", "string", null=False, doc="Whom."),
        Column("follows", "boolean", null=False, doc="Whether it follows, or does no more."),
    ),
    owner="tests",
)
