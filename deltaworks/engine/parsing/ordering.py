"""Values as texts that sort as the values do: as a part of a sequence, which both ways to commit compare as text."""

from decimal import Context

import pyarrow as pa

_EXACT = Context(prec=80)
_INTEGERS, _DECIMALS = (2**63, 20), (10**38, 39)
"""What makes every value of such types positive, and the digits that the highest has then."""


def ordered(values: pa.Array) -> pa.Array:
    """One text for each integer, decimal, date or timestamp of an array; null for null."""
    least, width = _INTEGERS
    if pa.types.is_decimal(values.type):
        least, width = _DECIMALS
        scale = values.type.scale
        numbers = [None if one is None else int(one.scaleb(scale, context=_EXACT)) for one in values.to_pylist()]
    elif pa.types.is_date(values.type):
        numbers = values.cast(pa.int32()).to_pylist()
    else:
        numbers = values.cast(pa.int64()).to_pylist()
    texts = [None if number is None else f"{number + least:0{width}d}" for number in numbers]
    return pa.array(texts, pa.string())
