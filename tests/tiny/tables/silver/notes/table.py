"""Notes that members wrote. One row per note."""

from deltaworks.words import Column, Table, append, json, minutes, refuse

TABLE = Table(
    app="tiny",
    reads=json("bronze.letters", topic="notes", unknown_fields=refuse()),
    kept_as=append(dedupe_by=("note_id",), within=minutes(10)),
    columns=(
        Column("note_id", "string", null=False, doc="Given by the writer."),
        Column("written_at", "timestamp", null=False, wire="millis", doc="When it was written, UTC."),
        Column("member_id", "bigint", doc="Who wrote it, if known."),
        Column("words", "int", null=False, doc="Its length in words."),
    ),
    event_time="written_at",
    subject="member_id",
    owner="tests",
)
