"""What the application told, as it came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="feed", reads=kafka("told"), kept_as=raw(), owner="tests")
