"""Requests in the first six of every ten minutes: a hopping window with gaps (size 6, hop 10)."""

from deltaworks.words import Column, Table, add, aggregate, correct, minutes

TABLE = Table(
    app="web",
    reads="silver.api_requests",
    kept_as=aggregate(keys=("since",), combine={"requests": add}),
    late=correct(after=minutes(10)),
    columns=(
        Column("since", "timestamp", null=False, doc="Start of the six minutes, UTC."),
        Column("requests", "bigint", null=False, doc="Requests in them."),
    ),
    event_time="since",
    owner="operations",
    keep_days=90,
)
