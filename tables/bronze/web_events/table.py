"""Every event of the web shop's pages, as it came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="web", reads=kafka("page_views"), kept_as=raw(), owner="web analytics")
