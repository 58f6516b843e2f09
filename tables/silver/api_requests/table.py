"""Requests to the shop's servers. One row per request."""

from deltaworks.words import Column, Table, append, hours, json

TABLE = Table(
    app="web",
    reads=json("bronze.web_events", topic="api_requests"),
    kept_as=append(dedupe_by=("request_id",), within=hours(1)),
    columns=(
        Column("request_id", "string", null=False, doc="Given by the server; the same in every copy of the event."),
        Column("requested_at", "timestamp", null=False, doc="When it came, UTC."),
        Column("client_id", "string", null=False, pii=True, doc="Who asked: an address, or a program's name."),
        Column("endpoint", "string", null=False, doc="Path that was asked for."),
        Column("status", "int", null=False, doc="HTTP status of the answer."),
        Column("milliseconds", "int", null=False, doc="How long the answer took."),
    ),
    event_time="requested_at",
    subject="client_id",
    owner="web analytics",
    keep_days=760,
)
