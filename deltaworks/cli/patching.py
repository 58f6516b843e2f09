"""`deltaworks quarantine patch` and `withdraw`: what a refused row should have said; what came stays as it came."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from deltaworks.cli import show
from deltaworks.cli.commands import order, ordered, told
from deltaworks.cli.context import settings
from deltaworks.cli.quarantine import beside, parsing, place_of
from deltaworks.errors import QueryError

_Table = Annotated[str, typer.Argument(help="Name of the table, such as silver.orders.")]
_Row = Annotated[str, typer.Option("--row", help="The refused row, as TOPIC/PARTITION/OFFSET.")]
_By = Annotated[str | None, typer.Option("--by", help="Who says so; default: the user of the system.")]
_Reason = Annotated[str, typer.Option(help="Why, for the record; without values of the row.")]
_Fields = dict[str, msgspec.Raw]
"""An object whose values stay as they were written: a fraction would lose digits as a number."""


def patch(
    table: _Table,
    *,
    row: _Row,
    reason: _Reason,
    value: Annotated[
        str | None, typer.Option(help="The whole new value: a file, - for what is piped in, or a JSON object.")
    ] = None,
    fields: Annotated[
        list[str] | None, typer.Option("--set", help="FIELD=VALUE: what came, with this field as JSON or as text.")
    ] = None,
    by: _By = None,
) -> None:
    """Say what a refused row should have said. It is judged at once, and goes to the table with the next replay.

    Bronze and quarantine keep what came. Given again for the same row it takes the place of the patch before.
    """
    from deltaworks import catalog
    from deltaworks.engine.staging import staging
    from deltaworks.engine.writers.patches import VALUE

    if (value is None) != bool(fields):
        raise typer.BadParameter("Give one of --value and --set.", param_hint="--value")
    now = settings()
    (name,) = parsing(catalog.load(now.project), table)
    place = place_of(row)
    new = _changed(name, place, fields) if value is None else _given(value)
    with staging(now) as staged:  # not among the order's arguments, which everybody may read who may see orders
        _write(staged.folder / VALUE, new)
        arguments = {**place, "folder": staged.folder.name}
        ended = ordered(
            name, kind="patch_refused_row", arguments=arguments, by=by, reason=reason, sent=staged.is_ordered
        )
        staged.ordered = False
    assert ended is not None, "it was waited for"
    told(ended)
    next_step = f'It goes to the table with "deltaworks quarantine replay {name}"'
    show.out.print(next_step, markup=False, soft_wrap=True)


def withdraw(table: _Table, *, row: _Row, reason: _Reason, by: _By = None) -> None:
    """Take the patch of a row back that is still refused: it is judged as it came again."""
    from deltaworks import catalog

    (name,) = parsing(catalog.load(settings().project), table)
    order(name, kind="withdraw_patch", arguments=place_of(row), by=by, reason=reason, wait=True)


def _given(value: str) -> bytes:
    if value.lstrip().startswith("{"):
        return value.encode()
    if value == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(value).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{value}: {error.strerror}.", param_hint="--value") from None


def _write(file: Path, new: bytes) -> None:
    """For the owner's eyes only: it may hold personal data. A power cut leaves the order, so it leaves this."""
    from deltaworks.engine import disk

    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(new)
    disk.sync(file.parent)


def _changed(name: str, place: Mapping[str, object], fields: list[str] | None) -> bytes:
    """What came, with other fields: of a change of a database those of the row after it."""
    from deltaworks import catalog
    from deltaworks.engine.parsing.json import may_be_wrapped
    from deltaworks.words.reading import Debezium

    told_by = dict(_field(text) for text in fields or ())
    table = catalog.load(settings().project)[name].table
    envelope = isinstance(table.reads, Debezium)
    try:
        came = _came(name, place)
        beside = ("payload",) if _is_wrapped(came) and (envelope or may_be_wrapped(table.columns)) else ()
        return _with(came, told_by, inside=(*beside, "after") if envelope else beside)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        what = "a change with a row after it" if envelope else "a JSON object"
        raise typer.BadParameter(f"What came is not {what}: give the whole --value.", param_hint="--set") from None


def _is_wrapped(value: bytes) -> bool:
    """Whether this object is a record beside its schema."""
    from deltaworks.engine.parsing.document import is_wrapped

    return is_wrapped(msgspec.json.decode(value, type=dict[str, Any]))


def _with(value: bytes, fields: _Fields, *, inside: Sequence[str]) -> bytes:
    """The object with other fields in the object that this path leads to."""
    document = msgspec.json.decode(value, type=_Fields)
    if not inside:
        return msgspec.json.encode(document | fields)
    first, *others = inside
    changed = _with(bytes(document[first]), fields, inside=others)
    return msgspec.json.encode(document | {first: msgspec.Raw(changed)})


def _field(text: str) -> tuple[str, msgspec.Raw]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter("Write FIELD=VALUE.", param_hint="--set")
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError):
        return name, msgspec.Raw(msgspec.json.encode(value))
    return name, msgspec.Raw(value.encode())


def _came(name: str, place: Mapping[str, object]) -> bytes:
    from deltaworks import analyst
    from deltaworks.query.text import literal

    chosen = " and ".join(f'"{field}" = {literal(str(value))}' for field, value in place.items())
    with analyst.connect(settings().lake) as lake:
        aside = beside(lake, name, "quarantine")
        found = lake.sql(f"select value from {aside} where {chosen}").dicts() if aside else []  # noqa: S608  # literals
    if not found or not isinstance(found[0]["value"], bytes | bytearray):
        raise QueryError(name, "has refused no such row", f'See "deltaworks quarantine show {name}"')
    return bytes(found[0]["value"])
