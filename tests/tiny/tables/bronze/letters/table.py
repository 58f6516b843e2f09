"""Notes and members, as they came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="tiny", reads=kafka("notes", "members"), kept_as=raw(), owner="tests")
