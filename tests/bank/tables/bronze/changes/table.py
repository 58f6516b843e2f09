"""The bank's changes, as Debezium sent them."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="bank", reads=kafka("shop.changes"), kept_as=raw(), owner="tests")
