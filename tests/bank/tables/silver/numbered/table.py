"""Events that each sender numbers from 1 on. One row per event."""

from deltaworks.words import Column, Table, append, hours, json

TABLE = Table(
    app="bank",
    reads=json("bronze.events", topic="numbered"),
    kept_as=append(dedupe_by=("event_id",), within=hours(2)),
    columns=(
        Column("event_id", "string", null=False, doc="Given by the sender; the same in every copy."),
        Column("sent_at", "timestamp", null=False, doc="When it was sent, UTC, by the sender's clock."),
        Column("sender", "int", null=False, doc="Who sent it."),
        Column("number", "bigint", null=False, doc="The how manieth of this sender."),
    ),
    event_time="sent_at",
    owner="tests",
)
