"""A message of the topic: its place, its id, and the order that it confirms."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated

import msgspec
from confluent_kafka import Message

_ID_LENGTH_MAX = 200  # it is a key in Postgres and a header of HTTP


class MalformedError(Exception):
    """A message that nobody can be told of. The text says why, without a value of the message."""


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """An order that was placed; fields that are not here are ignored."""

    order_id: int
    customer_id: int
    name: str
    email: str
    amount: Decimal
    placed_at: Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass(frozen=True, kw_only=True)
class Letter:
    """A message as it came. `id` is the same at every redelivery, and None where the header is missing or no text."""

    topic: str
    partition: int
    offset: int
    id: str | None
    payload: bytes

    @classmethod
    def of(cls, message: Message) -> "Letter":
        """Take over a message that has a value."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        found = _id_of(dict(message.headers() or ()).get("id"))
        return cls(topic=topic, partition=partition, offset=offset, id=found, payload=bytes(message.value() or b""))

    @property
    def place(self) -> str:
        """Where it is in the log."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def name(self) -> str:
        """What it is called: its id, or its place where it has none."""
        return self.place if self.id is None else self.id


def read(letter: Letter) -> Confirmation:
    """Parse a letter; raises MalformedError."""
    if letter.id is None:
        raise MalformedError(f"header id: missing, or not 1 to {_ID_LENGTH_MAX} printable characters of UTF-8")
    try:
        found = msgspec.json.decode(letter.payload, type=Confirmation)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedError(f"value: {error}") from None
    if not found.amount.is_finite():
        raise MalformedError("value: amount is no number")
    return found


def _id_of(header: bytes | str | None) -> str | None:
    try:
        text = header.decode() if isinstance(header, bytes) else header
    except UnicodeDecodeError:
        return None
    fits = text is not None and text == text.strip() and text.isprintable() and 0 < len(text) <= _ID_LENGTH_MAX
    return text if fits else None
