"""How the answer to a query looks: a table for people, JSON and CSV for programs.

Exact values stay exact in all three: decimals keep their digits (in JSON as strings: its readers take numbers for
floats), times are UTC (with a Z for programs), bytes are written as DuckDB writes them.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from deltaworks.analyst import Answer

_TEXT_WIDTH_MIN = 12  # where text would be folded narrower, each row becomes a block of its own
_GAP = 2
_NUMBERS = frozenset(
    {
        "BIGINT", "DECIMAL", "DOUBLE", "FLOAT", "HUGEINT", "INTEGER", "SMALLINT", "TINYINT",
        "UBIGINT", "UHUGEINT", "UINTEGER", "USMALLINT", "UTINYINT",
    }
)  # fmt: skip


def write_json(names: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
    """Write a list of objects, one a line, row by row so that an answer of any length can be written."""
    before = "[\n"
    for row in rows:
        values = {name: _for_json(value) for name, value in zip(names, row, strict=True)}
        sys.stdout.write(before + json.dumps(values, ensure_ascii=False))
        before = ",\n"
    sys.stdout.write("[]\n" if before == "[\n" else "\n]\n")


def write_csv(names: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
    """Write RFC 4180 with a header; NULL is an empty field, an empty text is a quoted one."""
    sys.stdout.write(",".join(_csv_field(name) for name in names) + "\r\n")
    for row in rows:
        sys.stdout.write(",".join(_csv_field(value) for value in row) + "\r\n")


def show(answer: "Answer") -> None:
    """Print a table, or a block for each row where the columns do not fit, and a line on what it is."""
    from deltaworks.cli.show import draw, out

    if [column.name for column in answer.columns] == ["explain_key", "explain_value"]:
        out.print("\n".join(str(row[1]) for row in answer.rows), markup=False, soft_wrap=True)
        return
    columns = _columns(answer)
    widths = [max(cell.cell_len for cell in column) for column in columns]
    needed = [min(width, _TEXT_WIDTH_MIN) if _folds(column.type) else width
              for width, column in zip(widths, answer.columns, strict=True)]  # fmt: skip
    if answer.rows and sum(needed) + _GAP * len(needed) > out.width:
        for number in range(len(answer.rows)):
            out.print(f"row {number + 1:,}", style="bold")
            draw(_block([(column[0], column[number + 1]) for column in columns]))
    else:
        draw(_grid(answer, columns))
    out.print(_told(answer), style="dim", soft_wrap=True)


def _columns(answer: "Answer") -> "list[list[Text]]":
    """Name and cells of each column."""
    from rich.text import Text

    columns = []
    for index, column in enumerate(answer.columns):
        values = [row[index] for row in answer.rows]
        text = _for_people(values)
        cells = [Text("NULL", style="dim") if value is None else Text(text(value)) for value in values]
        columns.append([Text(_printable(column.name)), *cells])
    return columns


def _grid(answer: "Answer", columns: "list[list[Text]]") -> "Table":
    from rich.table import Table

    grid = Table(header_style="bold", box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for column, cells in zip(answer.columns, columns, strict=True):
        justify: Literal["right", "left"] = "right" if _base(column.type) in _NUMBERS else "left"
        grid.add_column(cells[0], justify=justify, overflow="fold", no_wrap=not _folds(column.type))
    for number in range(len(answer.rows)):
        grid.add_row(*(cells[number + 1] for cells in columns))
    return grid


def _block(fields: "list[tuple[Text, Text]]") -> "Table":
    from rich.table import Table

    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, _GAP, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields:
        grid.add_row(name, value)
    return grid


def _told(answer: "Answer") -> str:
    count = len(answer.rows)
    rows = f"first {count:,} rows" if answer.more else f"{count:,} row{'' if count == 1 else 's'}"
    utc = ", times are UTC" if any("WITH TIME ZONE" in column.type for column in answer.columns) else ""
    more = "; more with --limit, all with --csv or --json" if answer.more else ""
    return f"{rows} in {answer.seconds:.2f} s{utc}{more}"


def _base(type_name: str) -> str:
    """DECIMAL of DECIMAL(18,2); LIST of BIGINT[]."""
    return "LIST" if type_name.endswith("]") else type_name.partition("(")[0]


def _folds(type_name: str) -> bool:
    base = _base(type_name)
    return base not in _NUMBERS and not base.startswith(("TIMESTAMP", "DATE", "TIME", "BOOLEAN"))


def _for_people(values: Sequence[object]) -> Callable[[object], str]:
    """How to write the values of one column: its times share their number of digits."""
    micros = [value.microsecond for value in values if isinstance(value, datetime)]
    digits = "seconds" if not any(micros) else "milliseconds" if not any(m % 1000 for m in micros) else "microseconds"

    def text(value: object) -> str:
        if isinstance(value, datetime):
            return _utc(value).replace(tzinfo=None).isoformat(sep=" ", timespec=digits)
        if isinstance(value, list | tuple | dict):
            return _printable(json.dumps(_for_json(value), ensure_ascii=False))
        plain = _for_json(value)
        return _printable(plain) if isinstance(plain, str) else json.dumps(plain)

    return text


def _printable(text: str) -> str:
    """Control characters as escapes: a value must not move the cursor nor break the row."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    plain = _for_json(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    quoted = not text or any(mark in text for mark in ',"\r\n')
    return '"' + text.replace('"', '""') + '"' if quoted else text


def _for_json(value: object) -> object:
    return _WRITERS.get(type(value), str)(value)


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC) if value.tzinfo else value


def _float(value: float) -> object:
    return value if math.isfinite(value) else str(value)  # JSON has no NaN


def _bytes(value: bytes) -> str:
    shown = (32 <= byte < 127 and byte not in b"\\'\"" for byte in value)
    return "".join(chr(byte) if plain else f"\\x{byte:02X}" for byte, plain in zip(value, shown, strict=True))


def _list(value: Sequence[object]) -> list[object]:
    return [_for_json(item) for item in value]


def _object(value: dict[object, object]) -> dict[str, object]:
    return {str(_for_json(key)): _for_json(item) for key, item in value.items()}


def _same(value: object) -> object:
    return value


_WRITERS: dict[type, Callable[[Any], object]] = {
    NoneType: _same,
    bool: _same,
    int: _same,
    str: _same,
    float: _float,
    Decimal: lambda value: format(value, "f"),  # str() may give an exponent
    datetime: lambda value: _utc(value).isoformat().replace("+00:00", "Z"),
    date: date.isoformat,
    time: time.isoformat,
    bytes: _bytes,
    list: _list,
    tuple: _list,
    dict: _object,
}
