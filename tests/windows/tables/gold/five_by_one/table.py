"""Ticks in windows of five minutes, one beginning every minute."""

from deltaworks.words import Column, Table, add, aggregate, correct, minutes

TABLE = Table(
    app="windows",
    reads="silver.ticks",
    kept_as=aggregate(keys=("since",), combine={"ticks": add}),
    late=correct(after=minutes(10)),
    columns=(
        Column("since", "timestamp", null=False, doc="Begin of the window, UTC."),
        Column("ticks", "bigint", null=False, doc="How many lie in it; one at its end does not."),
    ),
    event_time="since",
    owner="tests",
)
