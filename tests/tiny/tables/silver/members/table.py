"""Members as last reported. One row per member."""

from deltaworks.words import Column, Table, json, latest

TABLE = Table(
    app="tiny",
    reads=json("bronze.letters", topic="members"),
    kept_as=latest(keys=("member_id",)),
    columns=(
        Column("member_id", "bigint", null=False, doc="Given when the member joined."),
        Column("name", "string", pii=True, doc="As the member gave it."),
        Column("city", "string", null=False, doc="Where the member lives."),
        Column("dues", "decimal(8,2)", null=False, doc="Paid per year, in euros."),
        Column("joined", "date", doc="Day of joining, if known."),
    ),
    subject="member_id",
    owner="tests",
)
