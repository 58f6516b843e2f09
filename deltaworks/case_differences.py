"""What a table holds beside what a case says: differences as sentences, rows written as in the case's own file."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isnan
from types import MappingProxyType
from typing import TypeVar

from deltaworks.cases import Case, Refused, Row, Value, Wire

_T = TypeVar("_T", Row, Refused, str)
_DOUBLE_DIGITS = 12  # the last digits of a sum of doubles depend on the order of the rows


def differences(
    case: Case,
    *,
    keys: Sequence[str],
    rows: Sequence[Row],
    refused: Sequence[Refused],
    late: Sequence[Row] = (),
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """What is missing, extra or otherwise than the case says, a line each; nothing when all is as it says.

    `left_out`: what could not be computed, as a case names it, and as it is told.
    """
    wanted, found = [_comparable(row) for row in case.rows], [_comparable(row) for row in rows]
    missing, extra = _unmatched(case.late, late)
    of_late = (*(f"not late: {written(row)}" for row in missing), *(f"late: {written(row)}" for row in extra))
    computed, not_computed = _unmatched(case.left_out, list(left_out))
    of_computed = (
        *(f"can be computed: {one}" for one in computed),
        *(f"cannot be computed: {left_out[one]}" for one in not_computed),
    )
    return (*_of_rows(wanted, found, keys), *_of_refused(case.refused, refused), *of_late, *of_computed)


def _comparable(row: Row) -> Row:
    return {name: _double(value) if isinstance(value, float) else value for name, value in row.items()}


def _double(value: float) -> float | str:
    return "NaN" if isnan(value) else float(f"{value:.{_DOUBLE_DIGITS}g}")  # one NaN is as good as another


def _of_rows(wanted: Sequence[Row], found: Sequence[Row], keys: Sequence[str]) -> list[str]:
    missing, extra = _unmatched(wanted, found)
    lines = []
    for row in missing:
        other = _nearest(row, extra, keys)
        if other is None:
            lines.append(f"missing: {written(row)}")
            continue
        extra.remove(other)
        shown = {name: row[name] for name in keys} or row
        parts = [
            f"{name}: expected {_value(value)}, found {_value(other[name])}"
            for name, value in row.items()
            if other[name] != value
        ]
        lines.append(f"differs: {written(shown)}: {'; '.join(parts)}")
    return [*lines, *(f"extra: {written(row)}" for row in extra)]


def _of_refused(wanted: Sequence[Refused], found: Sequence[Refused]) -> list[str]:
    missing, extra = _unmatched(wanted, found)
    lines = []
    for one in missing:
        other = next((other for other in extra if other.row == one.row), None)
        if other is None:
            lines.append(f"not refused: {_record(one.row)}: expected {one.reason}")
            continue
        extra.remove(other)
        lines.append(f"refused otherwise: {_record(one.row)}: expected {one.reason}, found {other.reason}")
    return [*lines, *(f"refused: {_record(one.row)}: {one.reason}" for one in extra)]


def _unmatched(wanted: Sequence[_T], found: Sequence[_T]) -> tuple[list[_T], list[_T]]:
    """What is only wanted and what is only found; a row that is there twice counts twice."""
    missing, extra = [], list(found)
    for one in wanted:
        if one in extra:
            extra.remove(one)
        else:
            missing.append(one)
    return missing, extra


def _nearest(row: Row, others: Sequence[Row], keys: Sequence[str]) -> Row | None:
    """The row with the same keys; where a table has none, the one that is like it in half of the columns or more."""

    def likeness(other: Row) -> int:
        return sum(other[name] == value for name, value in row.items())

    same = [other for other in others if all(other[name] == row[name] for name in keys)]
    nearest = max(same, key=likeness, default=None)
    return nearest if nearest is None or keys or 2 * likeness(nearest) >= len(row) else None


def written(row: Row) -> str:
    """A row as a case writes it: without the columns that are null."""
    columns = [f"{name}: {_value(value)}" for name, value in row.items() if value is not None]
    return f"{{{', '.join(columns)}}}"


def _value(value: Value) -> str:
    match value:
        case None | bool() | int() | float():
            return json.dumps(value)
        case datetime():
            return f'"{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"'
        case date():
            return f'"{value.isoformat()}"'
        case Decimal():
            return f'"{value}"'
        case bytes():
            return json.dumps(value.decode("latin-1"))
    return json.dumps(value, ensure_ascii=False)


def _record(record: Wire) -> str:
    value = _document(record.value)
    return value if record.key is None else f"{{key: {_document(record.key)}, value: {value}}}"


def _document(value: bytes | None) -> str:
    """A JSON object as its text, what is none as bytes."""
    if value is None:
        return "null"
    try:
        if isinstance(json.loads(value), Mapping):
            return value.decode()
    except ValueError:  # UnicodeDecodeError too
        pass
    return f"{{bytes: {_value(value)}}}"
