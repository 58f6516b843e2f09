"""Moments at which something ticked. One row per tick."""

from deltaworks.words import Column, Table, append, hours, json

TABLE = Table(
    app="windows",
    reads=json("bronze.ticks", topic="ticks"),
    kept_as=append(dedupe_by=("tick",), within=hours(1)),
    columns=(
        Column("tick", "string", null=False, doc="Its name."),
        Column("ticked_at", "timestamp", null=False, doc="When, UTC."),
    ),
    event_time="ticked_at",
    owner="tests",
)
