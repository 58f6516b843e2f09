"""How often each term was searched for, and how often a result was clicked, per day. One row per day and term."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="web",
    reads="gold.search_click_through",
    kept_as=view(keys=("day", "term")),
    columns=(
        Column("day", "date", null=False, doc="Day of the search, UTC."),
        Column("term", "string", null=False, doc="What was searched for."),
        Column("searches", "bigint", null=False, doc="How often."),
        Column("clicked", "bigint", null=False, doc="Of these, how many had a click on a result within an hour."),
        Column("rate", "double", null=False, doc="Click-through rate: clicked / searches."),
    ),
    event_time="day",
    owner="web analytics",
)
