"""Every change of the shop's database, as Debezium sent it: one topic, one partition, in commit order."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="shop", reads=kafka("shop.changes"), kept_as=raw(), owner="shop")
