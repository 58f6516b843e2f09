"""Page views per minute and page; those that came too late wait beside it until somebody decides."""

from deltaworks.words import Column, Table, add, aggregate, minutes, side_output

TABLE = Table(
    app="web",
    reads="silver.page_views",
    kept_as=aggregate(keys=("page", "minute"), combine={"views": add}),
    late=side_output(after=minutes(10)),
    columns=(
        Column("page", "string", null=False, doc="Path of the page."),
        Column("minute", "timestamp", null=False, doc="Start of the minute, UTC."),
        Column("views", "bigint", null=False, doc="Views of the page in that minute."),
    ),
    event_time="minute",
    owner="web analytics",
    keep_days=730,
)
