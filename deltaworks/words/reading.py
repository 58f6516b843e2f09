"""Where a table's rows come from: `kafka`, `json`, `debezium`; tables over tables name their inputs."""

from fnmatch import fnmatchcase
from typing import Literal

from deltaworks.words._word import word


@word
class Kafka:
    """Topics of the broker, read committed. Only bronze reads Kafka."""

    topics: tuple[str, ...]


@word
class UnknownFields:
    """What happens to fields that the table does not declare; `column` takes those that are kept.

    `named`: what they are called may be told in logs and commits.
    """

    policy: Literal["ignore", "refuse", "keep"]
    column: str | None = None
    named: bool = False


@word
class Json:
    """One JSON object per Kafka value, parsed strictly into the table's columns."""

    bronze: str
    topic: str
    unknown_fields: UnknownFields


@word
class Debezium:
    """Row changes of one source table, as Debezium's envelope in JSON, with its schema or without."""

    bronze: str
    table: str
    unknown_fields: UnknownFields = UnknownFields(policy="ignore")
    partitions: str | None = None
    replica_identity: Literal["default", "full"] = "default"

    def has(self, name: str) -> bool:
        """Whether a record that names this table of the source, with its schema, is one of the table."""
        return name == self.table or self.is_partition(name)

    def is_partition(self, name: str) -> bool:
        """Whether this is the name of one of its partitions, which come under names of their own."""
        return self.partitions is not None and name != self.table and fnmatchcase(name, self.partitions)


ARRIVAL = "arrival"
"""The `wire` of a column that is no field of the source: the broker's time of the record."""
Reads = Kafka | Json | Debezium | str | tuple[str, ...]


def kafka(*topics: str) -> Kafka:
    """Read these topics into bronze."""
    return Kafka(topics=topics)


def ignore(*, named: bool = False) -> UnknownFields:
    """Drop undeclared fields: they stay in bronze.

    `named`, as in what follows: their names may be told in logs and commits. Without it they are counted, for a sender
    can put anything into a name; those of a database's columns are told anyway.
    """
    return UnknownFields(policy="ignore", named=named)


def refuse(*, named: bool = False) -> UnknownFields:
    """Set a row with undeclared fields aside."""
    return UnknownFields(policy="refuse", named=named)


def keep(column: str, *, named: bool = False) -> UnknownFields:
    """Keep undeclared fields as one JSON text, numbers as they were written, in this column: a string, null if none."""
    return UnknownFields(policy="keep", column=column, named=named)


def json(bronze: str, *, topic: str, unknown_fields: UnknownFields | None = None) -> Json:
    """Read the JSON events of one topic from a bronze table. Unknown fields are ignored unless said otherwise."""
    return Json(bronze=bronze, topic=topic, unknown_fields=unknown_fields or ignore())


def debezium(
    bronze: str,
    *,
    table: str,
    partitions: str | None = None,
    unknown_fields: UnknownFields | None = None,
    replica_identity: Literal["default", "full"] = "default",
) -> Debezium:
    """Read the changes of one source table (`public.orders`) from a bronze table.

    `partitions`: the names of its partitions, as in `public.orders_*`, where Postgres publishes them under their own
    (`publish_via_partition_root` is not set). Columns that only the source has are ignored unless said otherwise.
    `replica_identity="full"`: the source's table has it, so a change carries the whole row of before; needed where the
    table is kept by other columns than the record's key has, for no record says so by itself.
    """
    return Debezium(
        bronze=bronze, table=table, partitions=partitions, unknown_fields=unknown_fields or ignore(),
        replica_identity=replica_identity,
    )  # fmt: skip
