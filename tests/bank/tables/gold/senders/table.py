"""What each sender has sent: with no number missing and none twice, count, sum and last number fit together."""

from deltaworks.words import Column, Table, add, aggregate, correct, greatest, hours

TABLE = Table(
    app="bank",
    reads="silver.numbered",
    kept_as=aggregate(keys=("sender",), combine={"events": add, "total": add, "last": greatest}),
    late=correct(after=hours(1)),
    columns=(
        Column("sender", "int", null=False, doc="Who sent."),
        Column("events", "bigint", null=False, doc="How many."),
        Column("total", "bigint", null=False, doc="Sum of their numbers."),
        Column("last", "bigint", null=False, doc="The highest number."),
    ),
    owner="tests",
)
