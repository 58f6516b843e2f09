"""`table new`: a folder that passes `table check` at once, to be edited from there."""

import dataclasses
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from deltaworks.catalog.declared import Declared
from deltaworks.catalog.loading import check, readable
from deltaworks.catalog.reading import LAYERS, NAME
from deltaworks.catalog.starting_texts import Draft, files
from deltaworks.errors import DeclarationError
from deltaworks.findings import nearest
from deltaworks.words import Column
from deltaworks.words.keeping import Append, Raw
from deltaworks.words.types import parse

KINDS = ("raw", "append", "latest", "history", "aggregate", "view")
_COMMA = re.compile(r",(?![^(]*\))")  # not the one inside decimal(p,s)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user said; what is empty is found out or begun with."""

    name: str
    reads: tuple[str, ...]
    kept_as: str | None = None
    columns: str = ""
    keys: tuple[str, ...] = ()
    topic: str | None = None
    source_table: str | None = None
    app: str | None = None
    owner: str | None = None


def new_table(project: Path, wish: Wish) -> list[Path]:
    """Write the table's folder and suite; gives the files. Raises DeclarationError, and then nothing was written."""
    project = project.resolve()
    layer, short = _name(wish.name)
    folder, suite = project / "tables" / layer / short, project / "expectations" / layer / f"{short}.yml"
    for path in (folder, suite):
        if path.exists():
            place = path.relative_to(project).as_posix()
            raise DeclarationError(place, "exists already", "Take another name, or delete it first")
    draft = _draft(wish, readable(project))
    texts = files(draft)
    written = [folder / name for name in texts if name != "suite"] + [suite]
    for path, text in zip(written, [texts[name] for name in texts if name != "suite"] + [texts["suite"]], strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    own = (f"{folder.relative_to(project).as_posix()}/", suite.relative_to(project).as_posix())
    wrong = [finding for finding in check(project) if finding.place.startswith(own)]
    if wrong:
        shutil.rmtree(folder)
        suite.unlink()
        raise wrong[0].error()
    return written


def _name(name: str) -> tuple[str, str]:
    layer, _, short = name.partition(".")
    if layer not in LAYERS:
        raise DeclarationError(name, f"there is no layer {layer}", nearest(layer, LAYERS, "layers"))
    if not NAME.fullmatch(short):
        next_step = "Write LAYER.NAME: lower-case letters, digits and _, a letter first"
        raise DeclarationError(name, "cannot be a table's name", next_step)
    return layer, short


def _draft(wish: Wish, tables: Mapping[str, Declared]) -> Draft:
    inputs = () if wish.name.startswith("bronze.") else tuple(_input(name, wish, tables) for name in wish.reads)
    if not wish.reads or (inputs and isinstance(inputs[0].table.kept_as, Raw) and len(inputs) > 1):
        finding = "reads nothing" if not wish.reads else "reads several bronze tables"
        raise DeclarationError(wish.name, finding, "Give one bronze table, or tables that are parsed, with --reads")
    kind = _kind(wish, inputs)
    columns = _columns(wish.columns) or _first_columns(kind, wish, inputs)
    keys = wish.keys or (() if kind == "raw" or (kind == "append" and wish.columns) else (columns[0].name,))
    return Draft(
        name=wish.name,
        kind=kind,
        app=wish.app or _app(wish, inputs, tables),
        owner=wish.owner or (inputs[0].table.owner if inputs else wish.app or _app(wish, inputs, tables)),
        inputs=inputs,
        topics=(wish.topic or _topic(wish, inputs),) if inputs else wish.reads,
        source_table=wish.source_table,
        columns=columns,
        keys=keys,
        by=_by(kind, wish, inputs, columns, keys),
    )


def _by(
    kind: str, wish: Wish, inputs: tuple[Declared, ...], columns: tuple[Column, ...], keys: tuple[str, ...]
) -> str | None:
    """Of a history of states the column from which on each holds: the first time that is no key."""
    if kind != "history" or wish.source_table or not inputs or not isinstance(inputs[0].table.kept_as, Raw):
        return None
    times = [column.name for column in columns if column.name not in keys and column.type in ("timestamp", "date")]
    if not times:
        finding = "a history of states needs a column that says from when on each holds"
        raise DeclarationError(wish.name, finding, "Give one of type timestamp or date with --columns")
    return times[0]


def _input(name: str, wish: Wish, tables: Mapping[str, Declared]) -> Declared:
    if name not in tables:
        raise DeclarationError(wish.name, f"there is no table {name}", nearest(name, tables, "tables"))
    return tables[name]


def _kind(wish: Wish, inputs: tuple[Declared, ...]) -> str:
    if wish.kept_as == "stateful":
        next_step = "Begin with a copy of tables/gold/user_sessions, as docs/how-to/sessions-and-joins.md says"
        raise DeclarationError(
            wish.name, "a stateful table is not begun by itself: what is near is yours to say", next_step
        )
    if wish.kept_as is not None:
        if wish.kept_as not in KINDS:
            finding = f"there is no way to keep called {wish.kept_as}"
            raise DeclarationError(wish.name, finding, nearest(wish.kept_as, KINDS, "ways to keep"))
        return wish.kept_as
    if not inputs:
        return "raw"
    if isinstance(inputs[0].table.kept_as, Raw):
        return "latest" if wish.source_table else "append"
    return "aggregate" if len(inputs) == 1 and isinstance(inputs[0].table.kept_as, Append) else "view"


def _topic(wish: Wish, inputs: tuple[Declared, ...]) -> str:
    topics = inputs[0].topics
    if len(topics) > 1 and not wish.source_table:
        finding = f"{inputs[0].name} reads several topics"
        raise DeclarationError(wish.name, finding, f"Give --topic: {' or '.join(topics)}")
    return topics[0] if topics else ""


def _app(wish: Wish, inputs: tuple[Declared, ...], tables: Mapping[str, Declared]) -> str:
    apps = sorted({declared.table.app for declared in inputs or tables.values()})
    if len(apps) != 1:
        finding = f"may be of {' or '.join(apps)}" if apps else "is the first table, so its app is not known"
        raise DeclarationError(wish.name, finding, "Give --app")
    return apps[0]


def _columns(text: str) -> tuple[Column, ...]:
    made = []
    for part in _COMMA.split(text) if text.strip() else ():
        name, _, kind = part.strip().partition(" ")
        parse(kind.strip())
        made.append(Column(name, kind.strip(), doc="To be described."))
    return tuple(made)


def _first_columns(kind: str, wish: Wish, inputs: tuple[Declared, ...]) -> tuple[Column, ...]:
    """Columns to begin with, where none are given."""
    if kind == "raw":
        return ()
    if kind == "append":
        return _columns("event_id string, event_time timestamp")
    if kind in ("latest", "history"):
        return _columns("id bigint, updated_at timestamp")
    given = inputs[0].columns
    key = next((column for column in given if column.name in (wish.keys or inputs[0].keys)), given[0])
    return _columns(f"{key.name} {key.type}, rows bigint" if key.name != "rows" else f"rows {key.type}, counted bigint")
