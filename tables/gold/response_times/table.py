"""How long the servers take, over the last hour, told every five minutes (a hopping window) for each endpoint.

The average is total_milliseconds / requests: sums can be added up, averages cannot.
"""

from deltaworks.words import Column, Table, add, aggregate, correct, greatest, minutes

TABLE = Table(
    app="web",
    reads="silver.api_requests",
    kept_as=aggregate(
        keys=("endpoint", "until"),
        combine={"requests": add, "errors": add, "total_milliseconds": add, "slowest_milliseconds": greatest},
    ),
    late=correct(after=minutes(10)),
    columns=(
        Column("endpoint", "string", null=False, doc="Path that was asked for."),
        Column("until", "timestamp", null=False, doc="End of the hour, UTC, not included."),
        Column("requests", "bigint", null=False, doc="Requests in it."),
        Column("errors", "bigint", null=False, doc="Of these, answered with a status of 500 or more."),
        Column("total_milliseconds", "bigint", null=False, doc="Sum of what the answers took."),
        Column("slowest_milliseconds", "int", null=False, doc="What the slowest took."),
    ),
    event_time="until",
    owner="operations",
    keep_days=90,
)
