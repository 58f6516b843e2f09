"""Cases: rows in, rows out, as YAML beside the table. Each is a test that runs as a batch and as a stream.

    given:                     # input table: batches of rows; "restart" and {at: time} between them
      silver.page_views: [[{page: /a, ...}, {...}], restart, [{...}]]
    then:
      rows: [{page: /a, minute: "2026-11-21T10:00:00Z", views: 2}]   # the table, in any order
      refused: [[row, reason]]                                       # where the table parses
      late: [row]                                                    # given rows that are set aside as too late
      left_out: ['["b"] of silver.contacts: CAST_INVALID_INPUT']     # what the transform cannot compute

Rows of a table name its columns; one that may be null may be left out; `delete: {key: ...}` deletes a row of a table
with keys. How late a row is follows from the batches as they are given, also where the case runs as one batch.
`at: "2026-11-21T10:00:45Z"` says when the rows after it arrive, so that a sender's clock can be ahead; rows of a table
of which it is not said arrive when they happen.
Rows of a bronze table are what Kafka carries: a JSON document, `bytes: "..."` (one character is one byte)
where it is malformed, or null for a tombstone; `{key: ..., value: ...}` where the key matters. Several inputs have
equally many batches, and restart together.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from deltaworks import documents
from deltaworks.errors import DeclarationError
from deltaworks.findings import nearest
from deltaworks.words import Column
from deltaworks.words.types import Type, parse

Value = bool | int | float | str | bytes | date | datetime | Decimal | None
Row = Mapping[str, Value]

_BITS = {"int": 31, "bigint": 63}
_READ_FROM: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "bigint": (int,),
    "double": (int, float, str),
    "string": (str,),
    "binary": (str,),
    "date": (str,),
    "timestamp": (str,),
    "decimal": (str, int, float),
}
_EXAMPLES = {
    "boolean": "true or false",
    "int": "a whole number below 2^31",
    "bigint": "a whole number below 2^63",
    "double": 'a number, "NaN", "Infinity" or "-Infinity"',
    "string": "text, in quotes if it looks like a number",
    "binary": r'text, one character for each byte, as in "\x00a"',
    "date": '"2026-11-21"',
    "timestamp": 'a time with its zone, as in "2026-11-21T10:00:00Z"',
    "decimal": 'a number that fits, as in "12.30"',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wire:
    """What a Kafka record carries; a null value is a tombstone."""

    key: bytes | None
    value: bytes | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Delete:
    """The row with these keys goes."""

    keys: Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows that come together, by input table; `at`: when they arrive, None where the case does not say."""

    rows: Mapping[str, tuple[Wire | Row | Delete, ...]]
    at: datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refused:
    """A given row that is set aside, and the reason."""

    row: Wire
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """What a table holds after these steps."""

    name: str
    table: str
    doc: str
    steps: tuple[Batch | Literal["restart"], ...]
    rows: tuple[Row, ...]
    refused: tuple[Refused, ...]
    late: tuple[Row, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """What the rows of a table look like in a case."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    wire: bool


class _MistakeError(Exception):
    """A finding without its place, and the line if it is known."""

    def __init__(self, finding: str, next_step: str, line: int | None = None) -> None:
        super().__init__(finding)
        self.finding, self.next_step, self.line = finding, next_step, line


def load(path: Path, *, shown: str, table: str, inputs: Mapping[str, Form], output: Form) -> Case:
    """Read a case; raises DeclarationError with the first mistake of its form. `shown` is the path for messages."""
    document = documents.read(path, shown)
    try:
        _keys_of(document, ("doc", "given", "then"), required=("given", "then"))
        _keys_of(document["then"], ("rows", "refused", "late", "left_out"), required=("rows",))
        steps = _steps(document["given"], inputs)
        rows = tuple(_row(one, output) for one in _list(document["then"]["rows"], "then.rows"))
        refused = tuple(_refused(one, steps) for one in _list(document["then"].get("refused", []), "then.refused"))
        late = _late(document["then"].get("late", []), inputs)
        left_out = tuple(_text(one) for one in _list(document["then"].get("left_out", []), "then.left_out"))
    except _MistakeError as mistake:
        place = f"{shown}:{mistake.line}" if mistake.line else shown
        raise DeclarationError(place, mistake.finding, mistake.next_step) from None
    doc = str(document.get("doc", ""))
    return Case(
        name=path.stem, table=table, doc=doc, steps=steps, rows=rows, refused=refused, late=late, left_out=left_out
    )


def _keys_of(document: Any, known: Sequence[str], required: Sequence[str]) -> None:
    if not isinstance(document, documents.Mapping):
        raise _MistakeError(f"{document!r} is no mapping", f"Write {', '.join(f'{key}:' for key in required)}")
    for key in document:
        if key not in known:
            raise _MistakeError(f"unknown key {key}", nearest(key, known, "keys"), document.line)
    for key in required:
        if key not in document:
            raise _MistakeError(f"there is no {key}:", f"Write {key}:", document.line)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise _MistakeError(f"{what} is no list", "Write [...]")
    return value


def _steps(given: Any, inputs: Mapping[str, Form]) -> tuple[Batch | Literal["restart"], ...]:
    _keys_of(given, tuple(inputs), required=tuple(inputs))
    lists = {name: _list(given[name], name) for name in inputs}
    if len({len(steps) for steps in lists.values()}) > 1:
        raise _MistakeError("the inputs have unequally many batches", "Write [] where an input has no rows", given.line)
    if not any(isinstance(step, list) and step for steps in lists.values() for step in steps):
        raise _MistakeError("no rows are given", "Write [[row, row], restart, [row]]", given.line)
    made: list[Batch | Literal["restart"]] = []
    at: datetime | None = None
    for together in zip(*lists.values(), strict=True):
        if "restart" in together and any(step != "restart" for step in together):
            raise _MistakeError("one input restarts, another has rows", "Restart all inputs at one place", given.line)
        if together[0] == "restart":
            made.append("restart")
            continue
        if any(_is_time(step) for step in together):
            at = _time(together, at, given.line)
            continue
        rows = {name: _batch(step, inputs[name], given.line) for name, step in zip(lists, together, strict=True)}
        made.append(Batch(rows=MappingProxyType(rows), at=at))
    return tuple(made)


def _is_time(step: Any) -> bool:
    return isinstance(step, dict) and set(step) == {"at"}


def _time(together: Sequence[Any], before: datetime | None, line: int) -> datetime:
    """When the rows that follow arrive, as all inputs say."""
    if any(step != together[0] for step in together):
        raise _MistakeError("the inputs differ in when rows arrive", "Write the same at: in all inputs", line)
    try:
        at = _moment(together[0]["at"])
    except (TypeError, ValueError):
        finding = f"at: {together[0]['at']!r} is no timestamp"
        raise _MistakeError(finding, f"Write {_EXAMPLES['timestamp']}", line) from None
    if before is not None and at < before:
        raise _MistakeError(f"at: {at.isoformat()} is before the one above", "Rows arrive one after the other", line)
    return at


def _batch(step: Any, form: Form, line: int) -> tuple[Wire | Row | Delete, ...]:
    if not isinstance(step, list):
        raise _MistakeError(f"{step!r} is no batch", "Write [row, row], restart, or at: with a time", line)
    return tuple(_given(row, form) for row in step)


def _given(row: Any, form: Form) -> Wire | Row | Delete:
    if form.wire:
        return _wire(row)
    if isinstance(row, dict) and set(row) == {"delete"} and form.keys:
        columns = tuple(column for column in form.columns if column.name in form.keys)
        return Delete(keys=_row(row["delete"], Form(columns=columns, keys=form.keys, wire=False)))
    return _row(row, form)


def _wire(record: Any) -> Wire:
    if isinstance(record, documents.Mapping) and set(record) == {"key", "value"}:
        return Wire(key=_bytes(record["key"]), value=_bytes(record["value"]))
    return Wire(key=None, value=_bytes(record))


def _bytes(document: Any) -> bytes | None:
    if document is None:
        return None
    if not isinstance(document, documents.Mapping):
        next_step = 'Write a JSON document {...}, bytes: "...", or null for a tombstone'
        raise _MistakeError(f"{document!r} is nothing that Kafka carries here", next_step)
    if set(document) == {"bytes"}:
        return _latin(document["bytes"], document.line)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _row(row: Any, form: Form) -> Row:
    if not isinstance(row, documents.Mapping):
        raise _MistakeError(f"{row!r} is no row", "Write {column: value, ...}")
    names = [column.name for column in form.columns]
    for name in row:
        if name not in names:
            raise _MistakeError(f"there is no column {name}", nearest(name, names, "columns"), row.line)
    made: dict[str, Value] = {}
    for column in form.columns:
        value = row.get(column.name)
        if value is None and not column.null:
            raise _MistakeError(f"{column.name} is missing", "Give it a value: it may not be null", row.line)
        try:
            made[column.name] = None if value is None else typed(value, parse(column.type))
        except (ValueError, InvalidOperation):
            finding = f"{column.name}: {value!r} is no {column.type}"
            raise _MistakeError(finding, f"Write {_EXAMPLES[parse(column.type).name]}", row.line) from None
    return MappingProxyType(made)


def _refused(entry: Any, steps: Sequence[Batch | Literal["restart"]]) -> Refused:
    if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str)):
        raise _MistakeError(f"{entry!r} is no refused row", "Write [row, reason]")
    row = _wire(entry[0])
    given = [one for step in steps if isinstance(step, Batch) for rows in step.rows.values() for one in rows]
    if row not in given:
        next_step = "Write it as in given; only tables that parse refuse rows"
        raise _MistakeError("a refused row is not among the given ones", next_step, getattr(entry[0], "line", None))
    return Refused(row=row, reason=entry[1])


def _late(rows: Any, inputs: Mapping[str, Form]) -> tuple[Row, ...]:
    """Rows of the one input."""
    given = _list(rows, "then.late")
    form = next(iter(inputs.values()))
    if given and (form.wire or len(inputs) > 1):
        raise _MistakeError(
            "nothing is late here", "Take it out: only tables with a late policy over one input have late rows"
        )
    return tuple(_row(row, form) for row in given)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        next_step = 'Write what table test reports behind "cannot be computed: ", without where in the transform'
        raise _MistakeError(f"{value!r} is no text", next_step)
    return value


def typed(value: Any, kind: Type) -> Value:
    """A value of YAML as one of this type; raises ValueError or InvalidOperation if it is none."""
    if type(value) not in _READ_FROM[kind.name]:  # not isinstance: True is an int
        raise ValueError(value)
    made: Value = value
    match kind.name:
        case "int" | "bigint":
            if not -(2 ** _BITS[kind.name]) <= value < 2 ** _BITS[kind.name]:
                raise ValueError(value)
        case "double":
            if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
                raise ValueError(value)
            made = float(value)
        case "binary":
            made = value.encode("latin-1")
        case "date":
            made = date.fromisoformat(value)
        case "timestamp":
            made = _moment(value)
        case "decimal":
            made = _decimal(value, kind)
    return made


def _moment(value: str) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError(value)
    return moment.astimezone(UTC)


def _decimal(value: str | float, kind: Type) -> Decimal:
    assert kind.precision is not None and kind.scale is not None  # noqa: PT018  # a decimal has both
    number = Decimal(str(value))
    scaled = number.quantize(Decimal(1).scaleb(-kind.scale))
    if scaled != number or len(scaled.as_tuple().digits) > kind.precision:
        raise ValueError(value)
    return scaled


def _latin(text: Any, line: int) -> bytes:
    try:
        if isinstance(text, str):
            return text.encode("latin-1")
    except UnicodeEncodeError:
        pass
    raise _MistakeError("bytes holds more than bytes", r'Write one character for each byte, as in "\xff{"', line)
