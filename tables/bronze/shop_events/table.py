"""Events of the web shop that this app reads for itself: one topic may have any number of readers."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="shop", reads=kafka("cart_commands", "search_clicks", "large_purchases"), kept_as=raw(), owner="shop")
