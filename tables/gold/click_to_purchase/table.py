"""Clicks on advertisements with the first purchase within an hour. One row per click, without a purchase too."""

from deltaworks.words import Column, Table, correct, hours, minutes, stateful

TABLE = Table(
    app="web",
    reads=("silver.ad_clicks", "silver.purchases"),
    kept_as=stateful(
        keys=("user_id", "clicked_at", "click_id"), part=("user_id",), reach=hours(1), closes="waits_until"
    ),
    late=correct(after=minutes(10)),
    columns=(
        Column("user_id", "bigint", null=False, doc="Who clicked and bought."),
        Column("clicked_at", "timestamp", null=False, doc="When the click happened, UTC."),
        Column("click_id", "string", null=False, doc="The click."),
        Column("ad_id", "string", null=False, doc="The advertisement."),
        Column("bought_at", "timestamp", doc="The first purchase within an hour, UTC."),
        Column("amount", "decimal(12,2)", doc="What was paid then, in euros."),
        Column("waits_until", "timestamp", null=False, doc="An hour after the click, UTC."),
        Column("complete", "boolean", null=False, doc="Whether all purchases that are in time are known."),
    ),
    event_time="clicked_at",
    subject="user_id",
    owner="web analytics",
    keep_days=730,
)
