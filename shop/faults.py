"""What may be wrong with a message: sent twice, out of order, late, or malformed."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from shop.clock import MINUTE, SECOND

# Out of order means: well inside the ten minutes that the windows wait. Late means: well beyond them.
DISORDER_US = (1 * SECOND, 30 * SECOND)
LATE_US = (11 * MINUTE, 120 * MINUTE)
COPY_DISTANCE_MAX = 50  # a copy follows its original after at most this many positions

Spoiler = Callable[[bytes], bytes]
"""Turns the bytes of a well-formed message into ones that no reader may accept."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Shares (0 to 1) of positions that carry a fault.

    A position is out of order, late or malformed, never two of them; one that is not malformed may be copied as well.
    """

    duplicates: float = 0.0
    out_of_order: float = 0.0
    late: float = 0.0
    malformed: float = 0.0

    def __post_init__(self) -> None:
        """Refuse shares that cannot be; raises ValueError."""
        one_of = self.out_of_order + self.late + self.malformed
        if min(self.duplicates, self.out_of_order, self.late, self.malformed) < 0 or self.duplicates > 1 or one_of > 1:
            raise ValueError("shares lie between 0 and 1, and out of order, late and malformed add up to 1 at most")


def without(field: str) -> Spoiler:
    """Leave a field out."""

    def spoiler(value: bytes) -> bytes:
        return json.dumps({name: kept for name, kept in json.loads(value).items() if name != field}).encode()

    return spoiler


def replaced(field: str, wrong: object) -> Spoiler:
    """Put another value into a field."""

    def spoiler(value: bytes) -> bytes:
        return json.dumps(json.loads(value) | {field: wrong}).encode()

    return spoiler


def not_utf8(field: str) -> Spoiler:
    """Put bytes that are no UTF-8 into a field that holds a text."""
    begin = f'"{field}":"'.encode()
    return lambda value: value.replace(begin, begin + b"\xff\xfe")


NO_OBJECT: tuple[Spoiler, ...] = (
    lambda value: value[: len(value) // 2],  # truncated
    lambda value: b"GET /products/12 HTTP/1.1",  # not JSON  # noqa: ARG005  # every fault takes the value
    lambda value: b"",  # noqa: ARG005  # every fault takes the value
    lambda value: b"[" + value + b"]",  # JSON, but no object
)
