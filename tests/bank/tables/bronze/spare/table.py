"""Numbered events of a topic that faults may take away, as they came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="spare", reads=kafka("spare"), kept_as=raw(), owner="tests")
