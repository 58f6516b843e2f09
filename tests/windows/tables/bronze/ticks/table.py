"""Ticks, as they came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="windows", reads=kafka("ticks"), kept_as=raw(), owner="tests")
