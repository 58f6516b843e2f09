"""Parsed rows judged by the row rules: a broken critical one refuses the row, a broken warning is noted with it."""

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks.engine.parsing.bronze import Chunk
from deltaworks.engine.parsing.fields import column_of, field_of, part
from deltaworks.quality.judging import judge
from deltaworks.quality.rule import Rule

WARNED = pa.field("_warned", pa.string())
"""The names of the warnings that a row breaks, a line each; null for none."""
_BYTES = {"_key": "key", "_value": "value"}


def ruled(parsed: pa.RecordBatch, chunk: Chunk, rules: Sequence[Rule]) -> pa.RecordBatch:
    """The same rows with `WARNED`; those that break a critical rule become refused ones."""
    verdicts = judge(rules, parsed, pc.equal(parsed.column("_kind"), "row"), unsent=_unsent(parsed))
    count = parsed.num_rows
    warned = (
        [None] * count
        if not verdicts.warned
        else ["\n".join(verdicts.warned.get(at, ())) or None for at in range(count)]
    )
    columns = {name: parsed.column(name) for name in parsed.schema.names}
    if verdicts.refused:
        refused = pa.array([at in verdicts.refused for at in range(count)], pa.bool_())
        reasons = pa.array([verdicts.refused.get(at) for at in range(count)], pa.string())
        new = {"_kind": pa.scalar("refused"), "_reason": reasons}
        new |= {name: chunk.rows.column(of) for name, of in _BYTES.items()}
        for name, array in columns.items():
            if name in new:
                columns[name] = pc.if_else(refused, new[name], array)
            elif not name.startswith("_"):  # as of every refused row: nothing of it is a value of the table
                columns[name] = pc.if_else(refused, pa.scalar(None, array.type), array)
    schema = parsed.schema.append(WARNED)
    return pa.RecordBatch.from_arrays([*columns.values(), pa.array(warned, pa.string())], schema=schema)


def _unsent(parsed: pa.RecordBatch) -> dict[str, pa.Array]:
    """Per column that some row leaves out the rows that do: what it keeps was judged when it was sent."""
    notes = parsed.column("_sent")
    if notes.null_count == len(notes):
        return {}
    texts = pc.fill_null(notes, "{}")
    names = {name for text in pc.unique(texts).to_pylist() for name in json.loads(text)}
    found = {name: pc.match_substring(texts, json.dumps(name)) for name in names if field_of(name) is None}
    kept = {column_of(name) for name in names if field_of(name) is not None}
    return found | {column: pc.match_substring(texts, f'"{part(column, "")}') for column in kept}
