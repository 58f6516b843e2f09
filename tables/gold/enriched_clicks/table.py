"""Clicks with the customer as she was at that moment. A correction of her history corrects them."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="shop",
    reads=("silver.product_clicks", "silver.customers"),
    kept_as=view(keys=("user_id", "click_id")),
    columns=(
        Column("user_id", "bigint", null=False, doc="Who clicked."),
        Column("click_id", "string", null=False, doc="The click."),
        Column("clicked_at", "timestamp", null=False, doc="When it happened, UTC."),
        Column("url", "string", null=False, doc="Path that it led to."),
        Column("country", "string", doc="Where the customer lived then; null if she was none, or not known yet."),
        Column("tier", "string", doc="What she was then: basic or premium."),
        Column("age", "int", pii=True, doc="How old she was then, in years."),
    ),
    event_time="clicked_at",
    subject="user_id",
    owner="sales",
)
