"""Members and dues per city, as of now."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads="silver.members",
    kept_as=view(keys=("city",)),
    columns=(
        Column("city", "string", null=False, doc="Where the members live."),
        Column("members", "bigint", null=False, doc="Members there."),
        Column("dues", "decimal(18,2)", null=False, doc="Dues of all of them per year, in euros."),
    ),
    owner="tests",
)
