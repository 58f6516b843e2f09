"""Numbered events and the bank's changes, as they came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="bank", reads=kafka("numbered", "shop.changes"), kept_as=raw(), owner="tests")
