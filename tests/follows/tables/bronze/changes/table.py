"""The database's changes, as they came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="feed", reads=kafka("shop.changes"), kept_as=raw(), owner="tests")
