"""Impressions with the first click within ten minutes. One row per impression; null where none came."""

from deltaworks.words import Column, Table, correct, minutes, stateful

TABLE = Table(
    app="web",
    reads=("silver.ad_impressions", "silver.ad_clicks"),
    kept_as=stateful(
        keys=("impression_id", "shown_at"), part=("impression_id",), reach=minutes(10), closes="waits_until"
    ),
    late=correct(after=minutes(10)),
    columns=(
        Column("impression_id", "string", null=False, doc="The impression."),
        Column("shown_at", "timestamp", null=False, doc="When it was shown, UTC."),
        Column("ad_id", "string", null=False, doc="The advertisement."),
        Column("user_id", "bigint", null=False, doc="Who saw it."),
        Column("clicked_at", "timestamp", doc="The first click within ten minutes, UTC."),
        Column("waits_until", "timestamp", null=False, doc="Ten minutes after it was shown, UTC."),
        Column("complete", "boolean", null=False, doc="Whether a click that is in time can still come: false if so."),
    ),
    event_time="shown_at",
    subject="user_id",
    owner="web analytics",
    keep_days=730,
)
