"""The source's changes, as they came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="changes", reads=kafka("shop.changes"), kept_as=raw(), owner="tests")
