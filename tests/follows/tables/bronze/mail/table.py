"""What the application told, as it came to another app."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="mail", reads=kafka("told"), kept_as=raw(), owner="tests")
