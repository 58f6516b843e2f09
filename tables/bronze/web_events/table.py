"""Every event of the web shop's pages, as it came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(
    app="web",
    reads=kafka(
        *("page_views", "searches", "search_clicks", "ad_impressions", "ad_clicks", "purchases", "api_requests"),
    ),
    kept_as=raw(),
    owner="web analytics",
)
