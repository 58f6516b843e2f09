"""Visits: views of a user, no more than ten minutes from each to the next. A late view corrects its visit."""

from deltaworks.words import Column, Table, correct, minutes, stateful

TABLE = Table(
    app="web",
    reads="silver.page_views",
    kept_as=stateful(keys=("user_id", "session_start"), part=("user_id",), gap=minutes(10), closes="session_end"),
    late=correct(after=minutes(10)),
    columns=(
        Column("user_id", "bigint", null=False, doc="Who looked."),
        Column("session_start", "timestamp", null=False, doc="Time of the first view, UTC."),
        Column("session_end", "timestamp", null=False, doc="Ten minutes after the last view, UTC: then it is over."),
        Column("views", "bigint", null=False, doc="Views of the visit."),
        Column("pages", "bigint", null=False, doc="Different pages of the visit."),
        Column("landing_page", "string", null=False, doc="Page of the first view."),
        Column("exit_page", "string", null=False, doc="Page of the last view."),
        Column("complete", "boolean", null=False, doc="Whether all views that are in time have been counted."),
    ),
    event_time="session_start",
    subject="user_id",
    owner="web analytics",
    keep_days=730,
)
