"""Ticks per minute. One that is older than the newest of the batches before is not counted."""

from deltaworks.words import Column, Table, add, aggregate, drop, minutes

TABLE = Table(
    app="windows",
    reads="silver.ticks",
    kept_as=aggregate(keys=("minute",), combine={"ticks": add}),
    late=drop(after=minutes(0)),
    columns=(
        Column("minute", "timestamp", null=False, doc="Begin of the minute, UTC."),
        Column("ticks", "bigint", null=False, doc="How many it has."),
    ),
    event_time="minute",
    owner="tests",
)
