"""A table of the serving database made from a changelog alone: what a compacted topic holds is the whole table."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from typing import Any

import psycopg
from confluent_kafka import KafkaException

from deltaworks.catalog import Declared
from deltaworks.engine.outlets.feed import Change
from deltaworks.engine.outlets.publishing import messages_of
from deltaworks.engine.outlets.serving import Copy
from deltaworks.engine.parsing.json import ENCODING
from deltaworks.engine.parsing.refusal import Refusal
from deltaworks.engine.parsing.values import converter
from deltaworks.errors import OutletError
from deltaworks.settings import Settings
from deltaworks.words.outlets import Changelog

PER_STATEMENT = 5_000
"""Messages."""


def refuse(declared: Declared) -> Changelog:
    """The changelog of a table; raises OutletError if it has none."""
    publishes = declared.table.publishes
    if not isinstance(publishes, Changelog):
        finding = "publishes no changelog, from which it could be made"
        raise OutletError(declared.name, finding, "Declare publishes=changelog(TOPIC)")
    return publishes


def restore(declared: Declared, settings: Settings, *, into: str) -> int:
    """Make the table `into` (schema.table) of the serving database from the topic as it ends now; returns its rows.

    What is there goes, in the same transaction. Raises OutletError; then nothing has changed.
    """
    topic = refuse(declared).topic
    target = Copy(declared, into)
    try:
        with psycopg.connect(settings.serving_dsn(), connect_timeout=10) as connection:
            target.create(connection)
            messages = messages_of(topic, bootstrap=settings.kafka)
            for part in _parts(messages):
                target.change(connection, (_change(declared, key, value, topic) for key, value in part.items()))
            return target.rows(connection)
    except psycopg.Error as error:
        raise OutletError(into, str(error).splitlines()[0], 'Look at "deltaworks status"') from error
    except KafkaException as error:
        raise OutletError(f"topic {topic}", error.args[0].str(), 'Look at "deltaworks status"') from error


def _parts(messages: Iterator[tuple[bytes, bytes | None]]) -> Iterable[dict[bytes, bytes | None]]:
    """The last value of each key among some messages, in order."""
    while part := dict(islice(messages, PER_STATEMENT)):
        yield part


def _change(declared: Declared, key: bytes, value: bytes | None, topic: str) -> Change:
    columns = {column.name: column for column in declared.columns}
    try:
        own = _values(json.loads(key), [columns[name] for name in declared.keys])
        row = None if value is None else _values(json.loads(value, parse_float=Decimal), list(columns.values()))
    except (ValueError, KeyError, Refusal) as error:
        finding = f"a message is no row of {declared.name}: {error}"
        raise OutletError(f"topic {topic}", finding, "Look who else writes to it") from None
    return Change(0, own, row)


def _values(document: dict[str, Any], columns: list[Any]) -> tuple[Any, ...]:
    """The values in Postgres's types; published values are in JSON's, whatever the source's encoding was."""
    found = []
    for column in columns:
        value = document.get(column.name)  # what is told of before a column was declared lacks it
        array, refused = converter(replace(column, wire=None), ENCODING).column([value])
        if refused:
            raise ValueError(f"{column.name}: {refused[0]}")
        found.append(array[0].as_py())
    return tuple(found)
