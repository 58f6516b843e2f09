"""Parsed and judged rows for which the table's `only=` does not hold: not refused, and not the table's."""

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.quality.judging import holds
from deltaworks.quality.predicate import Predicate


def filtered(judged: pa.RecordBatch, only: Predicate) -> pa.RecordBatch:
    """The same rows; where `only` is false, or neither true nor false, a row is of kind `filtered`.

    No warning is about such a row: warnings are about what is in the table.
    """
    out = pc.and_(pc.equal(judged.column("_kind"), "row"), pc.invert(pc.fill_null(holds(only, judged), False)))
    new = {"_kind": pa.scalar("filtered"), "_warned": pa.scalar(None, pa.string())}
    columns = {name: judged.column(name) for name in judged.schema.names}
    columns |= {name: pc.if_else(out, value, columns[name]) for name, value in new.items()}
    return pa.RecordBatch.from_arrays([*columns.values()], schema=judged.schema)
