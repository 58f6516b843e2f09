"""Rows of a bronze table, built by hand: what parsing and the writers over bronze are given."""

from collections.abc import Sequence

import pyarrow as pa

from deltaworks.engine.parsing.bronze import NEEDED


def bronze(
    values: Sequence[bytes | str | None],
    *,
    topic: str = "events",
    keys: Sequence[bytes | str | None] | None = None,
    partition: int = 0,
    first_offset: int = 0,
    seq: int = 1,
) -> pa.Table:
    """One row per value, at offsets that follow each other."""
    count = len(values)
    columns = {
        "topic": [topic] * count,
        "partition": [partition] * count,
        "offset": range(first_offset, first_offset + count),
        "timestamp": range(count),
        "key": [None] * count if keys is None else list(keys),
        "value": list(values),
        "_seq": [seq] * count,
    }
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in NEEDED})
