"""The texts that a new table begins with: declaration, transform, suite, case."""

import dataclasses
import json
from collections.abc import Sequence
from datetime import date, datetime

from deltaworks.catalog.declared import Declared
from deltaworks.words import Column
from deltaworks.words.keeping import Raw
from deltaworks.words.types import parse

_DAY = "2026-01-01"
_MOMENT = f"{_DAY}T00:00:00Z"
_SAMPLES: dict[str, object] = {
    "boolean": True,
    "int": 1,
    "bigint": 1,
    "double": 1.5,
    "string": "a",
    "date": _DAY,
    "timestamp": _MOMENT,
    "decimal": "0",
}
_OVER_TABLES = ("aggregate", "view")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    """Everything that a new table says."""

    name: str
    kind: str
    app: str
    owner: str
    inputs: tuple[Declared, ...]
    topics: tuple[str, ...]
    source_table: str | None
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    by: str | None = None
    """Of a history of states the column from which on each holds."""

    @property
    def parses(self) -> bool:
        """Whether it reads bronze."""
        return bool(self.inputs) and isinstance(self.inputs[0].table.kept_as, Raw)


def files(draft: Draft) -> dict[str, str]:
    """The texts by file name in the table's folder; `suite` is the suite's."""
    texts = {"table.py": _table(draft)}
    if draft.kind in _OVER_TABLES:
        texts["transform.py"] = _transform(draft)
    if draft.kind != "raw":
        texts["cases/one_row.yml"] = _case(draft)
    return texts | {"suite": _suite(draft)}


def _table(draft: Draft) -> str:
    reads, kept_as = _reads(draft), _kept_as(draft)
    used = {word for text in (reads, kept_as) for word in _WORDS if f"{word}(" in text or f": {word}" in text}
    imported = ", ".join([*(["Column"] if draft.columns else []), "Table", *sorted(used)])
    lines = [
        f'"""{draft.name}: to be described. {_one_row(draft)}"""',
        "",
        f"from deltaworks.words import {imported}",
        "",
        "TABLE = Table(",
        f"    app={_quoted(draft.app)},",
        f"    reads={reads},",
        f"    kept_as={kept_as},",
    ]
    if draft.columns:
        lines += ["    columns=(", *(f"        {_column(draft, column)}," for column in draft.columns), "    ),"]
    if draft.kind == "append" and any((c.name, c.type) == ("event_time", "timestamp") for c in draft.columns):
        lines.append('    event_time="event_time",')
    return "\n".join([*lines, f"    owner={_quoted(draft.owner)},", ")", ""])


_WORDS = (
    "add",
    "aggregate",
    "append",
    "debezium",
    "greatest",
    "history",
    "hours",
    "json",
    "kafka",
    "latest",
    "raw",
    "view",
)


def _one_row(draft: Draft) -> str:
    return f"One row per {' and '.join(draft.keys)}." if draft.keys else "One row per record."


def _reads(draft: Draft) -> str:
    if not draft.inputs:
        return f"kafka({', '.join(map(_quoted, draft.topics))})"
    first = _quoted(draft.inputs[0].name)
    if draft.parses and draft.source_table:
        return f"debezium({first}, table={_quoted(draft.source_table)})"
    if draft.parses:
        return f"json({first}, topic={_quoted(draft.topics[0])})"
    return first if len(draft.inputs) == 1 else _tuple([declared.name for declared in draft.inputs])


def _kept_as(draft: Draft) -> str:
    match draft.kind:
        case "raw":
            return "raw()"
        case "append":
            return f"append(dedupe_by={_tuple(draft.keys)}, within=hours(1))" if draft.keys else "append()"
        case "aggregate":
            ways = ", ".join(f"{_quoted(column.name)}: {_way(column)}" for column in _values(draft))
            return f"aggregate(keys={_tuple(draft.keys)}, combine={{{ways}}})"
    by = f", by={_quoted(draft.by)}" if draft.by else ""
    return f"{draft.kind}(keys={_tuple(draft.keys)}{by})"


def _column(draft: Draft, column: Column) -> str:
    null = "" if _may_be_null(draft, column) else "null=False, "
    return f"Column({_quoted(column.name)}, {_quoted(column.type)}, {null}doc={_quoted(column.doc)})"


def _may_be_null(draft: Draft, column: Column) -> bool:
    if column.name not in draft.keys:
        return column.name != draft.by
    return draft.kind in _OVER_TABLES and not all(_never_null(column, declared) for declared in draft.inputs)


def _never_null(column: Column, declared: Declared) -> bool:
    """Whether the expression for a key column is null for no row of an input."""
    derived = _derived(column, declared) or ""
    return any(not given.null and _quoted(given.name) in derived for given in declared.columns)


def _values(draft: Draft) -> list[Column]:
    return [column for column in draft.columns if column.name not in draft.keys]


def _way(column: Column) -> str:
    return "add" if parse(column.type).adds_exactly else "greatest"


def _transform(draft: Draft) -> str:
    main, names = draft.inputs[0], [_short(declared) for declared in draft.inputs]
    keys = [column for column in draft.columns if column.name in draft.keys]
    parameters = ", ".join(f"{name}: DataFrame" for name in names)
    body = [
        f"def transform({parameters}) -> DataFrame:",
        f'    """{_one_row(draft)}"""',
        *([f"    # {', '.join(names[1:])}: to be joined"] if names[1:] else []),
        f"    return {names[0]}.groupBy({', '.join(_key(column, main) for column in keys)}).agg(",
        *(f"        {_value(column, main)}," for column in _values(draft) or keys[:1]),
        "    )",
    ]
    if draft.kind == "view":
        body += ["", "", *_keys_from(draft, keys)]
    text = "\n".join([*body, ""])
    functions = ["from pyspark.sql import functions as F"] if "F." in text else []
    head = [f'"""To {draft.name}."""', "", "from pyspark.sql import DataFrame", *functions, "", "", ""]
    return "\n".join(head) + text


def _keys_from(draft: Draft, keys: Sequence[Column]) -> list[str]:
    selects = {
        _short(declared): f"{_short(declared)}.select({', '.join(_key(column, declared) for column in keys)})"
        for declared in draft.inputs
    }
    doc = f'    """The {" and ".join(draft.keys)} that a changed row touches{{}}."""'
    if len(selects) == 1:
        (name,) = selects
        return [f"def keys_from({name}: DataFrame) -> DataFrame:", doc.format(""), f"    return {selects[name]}"]
    parameters = ", ".join(f"{name}: DataFrame | None = None" for name in selects)
    lines = [f"def keys_from({parameters}) -> DataFrame:", doc.format("; called with one changed input at a time")]
    *others, last = selects
    for name in others:
        lines += [f"    if {name} is not None:", f"        return {selects[name]}"]
    return [*lines, f"    assert {last} is not None", f"    return {selects[last]}"]


def _derived(column: Column, declared: Declared) -> str | None:
    """An expression for a key column out of an input's columns, if there is an obvious one."""
    types = {given.name: given.type for given in declared.columns}
    if types.get(column.name) == column.type:
        return _quoted(column.name)
    moment = declared.table.event_time or next((name for name, kind in types.items() if kind == "timestamp"), None)
    if moment and types.get(moment) == "timestamp" and column.type in ("date", "timestamp"):
        made = f'F.to_date("{moment}")' if column.type == "date" else f'F.date_trunc("hour", "{moment}")'
        return f"{made}.alias({_quoted(column.name)})"
    return None


def _key(column: Column, declared: Declared) -> str:
    return _derived(column, declared) or f"F.lit(None).cast({_quoted(column.type)}).alias({_quoted(column.name)})"


def _value(column: Column, declared: Declared) -> str:
    if _way(column) == "add":
        cast = "" if column.type == "bigint" else f".cast({_quoted(column.type)})"
        return f'F.count("*"){cast}.alias({_quoted(column.name)})'
    held = any((given.name, given.type) == (column.name, column.type) for given in declared.columns)
    what = _quoted(column.name) if held else f"F.lit(None).cast({_quoted(column.type)})"
    return f"F.max({what}).alias({_quoted(column.name)})"


def _suite(draft: Draft) -> str:
    if draft.kind == "raw":
        return "waived: raw copy; checked in silver\n"
    keys = [column.name for column in draft.columns if column.name in draft.keys and not _may_be_null(draft, column)]
    kind = "expect_column_values_to_not_be_null" if keys else "expect_column_to_exist"
    lines = ["expectations:"]
    for name in keys or [draft.columns[0].name]:
        lines += [f"  - type: {kind}", f"    kwargs: {{column: {name}}}", "    severity: critical"]
    return "\n".join([*lines, ""])


def _case(draft: Draft) -> str:
    main = draft.inputs[0]
    if draft.parses:
        given: dict[str, object] = {column.name: _wire(column, draft) for column in draft.columns}
        if draft.source_table:
            schema, _, table = draft.source_table.partition(".")
            source: dict[str, object] = {"schema": schema, "table": table, "lsn": 1, "snapshot": "false"}
            if draft.kind == "history":
                source["ts_us"] = int(datetime.fromisoformat(_MOMENT).timestamp() * 1_000_000)
            given = {"before": None, "after": given, "source": source, "op": "c"}
        row = {column.name: _sample(column) for column in draft.columns}
        if draft.kind == "history":
            row |= {"valid_from": _MOMENT, "is_current": True}  # which is what the samples of times and days are too
    else:
        given = {column.name: _sample(column) for column in main.columns}
        row = {column.name: value for column in draft.columns if (value := _result(draft, column, main)) is not None}
    lines = ["doc: To be described.", "given:", f"  {main.name}: [[{_flow(given)}]]"]
    lines += [f"  {declared.name}: [[]]" for declared in draft.inputs[1:]]
    return "\n".join([*lines, "then:", "  rows:", f"    - {_flow(row)}", ""])


def _result(draft: Draft, column: Column, main: Declared) -> object:
    """What the transform begun with makes of one sample row."""
    if column.name in draft.keys:
        return _sample(column) if _derived(column, main) else None
    if _way(column) == "add":
        return 1
    held = any((given.name, given.type) == (column.name, column.type) for given in main.columns)
    return _sample(column) if held else None


def _sample(column: Column) -> object:
    return "\x00" if column.type == "binary" else _SAMPLES[parse(column.type).name]


def _wire(column: Column, draft: Draft) -> object:
    """The sample as the source encodes it."""
    if column.type == "binary":
        return "AA=="
    if column.type == "date" and draft.source_table:
        return date.fromisoformat(_DAY).toordinal() - date(1970, 1, 1).toordinal()
    return _sample(column)


def _short(declared: Declared) -> str:
    return declared.name.partition(".")[2]


def _flow(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(map(_quoted, names))}{',' if len(names) == 1 else ''})"
