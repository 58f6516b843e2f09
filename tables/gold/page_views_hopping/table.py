"""Page views of one minute, told every thirty seconds: each view counts in two windows."""

from deltaworks.words import Column, Table, add, aggregate, correct, minutes

TABLE = Table(
    app="web",
    reads="silver.page_views",
    kept_as=aggregate(keys=("until",), combine={"views": add}),
    late=correct(after=minutes(10)),
    columns=(
        Column("until", "timestamp", null=False, doc="End of the minute, UTC, not included."),
        Column("views", "bigint", null=False, doc="Views in it."),
    ),
    event_time="until",
    owner="web analytics",
    keep_days=30,
)
