"""Notes per day. Late notes correct their day."""

from deltaworks.words import Column, Table, add, aggregate, correct, greatest, hours, least

TABLE = Table(
    app="tiny",
    reads="silver.notes",
    kept_as=aggregate(keys=("day",), combine={"notes": add, "words": add, "shortest": least, "last": greatest}),
    late=correct(after=hours(1)),
    columns=(
        Column("day", "date", null=False, doc="Day the notes were written, UTC."),
        Column("notes", "bigint", null=False, doc="Notes of that day."),
        Column("words", "bigint", null=False, doc="Their words together."),
        Column("shortest", "int", null=False, doc="Words of the shortest one."),
        Column("last", "timestamp", null=False, doc="When the last one was written."),
    ),
    event_time="day",
    owner="tests",
)
