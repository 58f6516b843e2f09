"""Page views per minute in which they came in, whenever they happened; beside page_views_per_minute it shows delays."""

from deltaworks.words import Column, Table, add, aggregate

TABLE = Table(
    app="web",
    reads="silver.page_views",
    kept_as=aggregate(keys=("minute",), combine={"views": add, "delay_seconds": add}),
    columns=(
        Column("minute", "timestamp", null=False, doc="Start of the minute of arrival, UTC."),
        Column("views", "bigint", null=False, doc="Views that came in that minute."),
        Column("delay_seconds", "bigint", null=False, doc="Sum of arrival minus view, both cut to whole seconds."),
    ),
    event_time="minute",
    owner="web analytics",
    keep_days=730,
)
