"""What each account has taken less what it has given: all balances together are 0 in every version."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="bank",
    reads="silver.transfers",
    kept_as=view(keys=("account",)),
    columns=(
        Column("account", "int", null=False, doc="Its number."),
        Column("balance", "decimal(18,2)", null=False, doc="Taken less given, in euros."),
        Column("transfers", "bigint", null=False, doc="How many it had a part in."),
    ),
    owner="tests",
)
