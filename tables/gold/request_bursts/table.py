"""Each request with those of the same client in the five minutes before (a sliding window). One row per request."""

from deltaworks.words import Column, Table, correct, minutes, stateful

TABLE = Table(
    app="web",
    reads="silver.api_requests",
    kept_as=stateful(keys=("client_id", "requested_at", "request_id"), part=("client_id",), reach=minutes(5)),
    late=correct(after=minutes(10)),
    columns=(
        Column("client_id", "string", null=False, pii=True, doc="Who asked."),
        Column("requested_at", "timestamp", null=False, doc="When, UTC."),
        Column("request_id", "string", null=False, doc="The request."),
        Column("requests", "bigint", null=False, doc="Requests of the client in the five minutes up to it, with it."),
        Column("errors", "bigint", null=False, doc="Of these, answered with a status of 400 or more."),
    ),
    event_time="requested_at",
    subject="client_id",
    owner="operations",
    keep_days=30,
)
