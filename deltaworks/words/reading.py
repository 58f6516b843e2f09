"""Where a table's rows come from: `kafka`, `json`, `debezium`; tables over tables name their inputs."""

from typing import Literal

from deltaworks.words._word import word


@word
class Kafka:
    """Topics of the broker, read committed. Only bronze reads Kafka."""

    topics: tuple[str, ...]


@word
class UnknownFields:
    """What happens to JSON fields that the table does not declare."""

    policy: Literal["ignore", "refuse"]


@word
class Json:
    """One JSON object per Kafka value, parsed strictly into the table's columns."""

    bronze: str
    topic: str
    unknown_fields: UnknownFields


@word
class Debezium:
    """Row changes of one source table, as Debezium's envelope without schema."""

    bronze: str
    table: str


Reads = Kafka | Json | Debezium | str | tuple[str, ...]


def kafka(*topics: str) -> Kafka:
    """Read these topics into bronze."""
    return Kafka(topics=topics)


def ignore() -> UnknownFields:
    """Drop undeclared fields: they stay in bronze."""
    return UnknownFields(policy="ignore")


def refuse() -> UnknownFields:
    """Set a row with undeclared fields aside."""
    return UnknownFields(policy="refuse")


def json(bronze: str, *, topic: str, unknown_fields: UnknownFields | None = None) -> Json:
    """Read the JSON events of one topic from a bronze table. Unknown fields are ignored unless said otherwise."""
    return Json(bronze=bronze, topic=topic, unknown_fields=unknown_fields or ignore())


def debezium(bronze: str, *, table: str) -> Debezium:
    """Read the changes of one source table (`public.orders`) from a bronze table."""
    return Debezium(bronze=bronze, table=table)
