"""Numbered events, as they came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="bank", reads=kafka("numbered"), kept_as=raw(), owner="tests")
