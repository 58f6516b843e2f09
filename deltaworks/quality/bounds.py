"""Bounds as Great Expectations on Spark means them, turned into exact ends of the column's own type.

It reads a number as a double, so Spark compares integers and decimals with it as doubles, which runs together numbers
beyond 2^53. Comparing so is monotonic: there is a first and a last value of the column that passes, found by halving.
"""

from collections.abc import Callable
from decimal import Decimal, localcontext

from deltaworks.words.types import Type

_INT_BITS = {"int": 31, "bigint": 63}
_DIGITS_MAX = 40  # more than any decimal has


def number_range(
    kind: Type, *, low: float | None, high: float | None, low_out: bool = False, high_out: bool = False
) -> tuple[int | Decimal, int | Decimal] | None:
    """First and last value of an integer or decimal type between two doubles; None if there is none."""
    lowest, highest, scale = _span(kind)
    first, last = lowest, highest
    if low is not None:
        bound_low: float = low
        found = _first(lowest, highest, scale, lambda value: value > bound_low if low_out else value >= bound_low)
        if found is None:
            return None
        first = found
    if high is not None:
        bound_high: float = high
        beyond = _first(lowest, highest, scale, lambda value: value >= bound_high if high_out else value > bound_high)
        last = highest if beyond is None else beyond - 1
    if first > last:
        return None
    return (first, last) if kind.name in _INT_BITS else (_scaled(first, scale), _scaled(last, scale))


def _span(kind: Type) -> tuple[int, int, int]:
    """Lowest and highest value without the decimal point, and its place."""
    if kind.name in _INT_BITS:
        bits = _INT_BITS[kind.name]
        return -(2**bits), 2**bits - 1, 0
    assert kind.precision is not None and kind.scale is not None  # noqa: PT018  # a decimal has both
    return -(10**kind.precision) + 1, 10**kind.precision - 1, kind.scale


def _first(lowest: int, highest: int, scale: int, passes: Callable[[float], bool]) -> int | None:
    """The first value that passes, when all after it do too."""
    if not passes(_double(highest, scale)):
        return None
    while lowest < highest:
        middle = (lowest + highest) // 2
        if passes(_double(middle, scale)):
            highest = middle
        else:
            lowest = middle + 1
    return lowest


def _double(value: int, scale: int) -> float:
    """The nearest double, as Java's BigDecimal and long give it."""
    return float(_scaled(value, scale)) if scale else float(value)


def _scaled(value: int, scale: int) -> Decimal:
    with localcontext() as context:
        context.prec = _DIGITS_MAX
        return Decimal(value).scaleb(-scale)
