"""Whether the lake is as the project declares it: columns, partitions, tables and topics. No Spark here.

What an app finds when it starts (`lake.py`) is told before.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from deltaworks.catalog import Catalog, Declared
from deltaworks.engine.folders import folder_of
from deltaworks.engine.own_columns import DAY_OF, OWN, PART_OF, addable, hidden
from deltaworks.errors import LakeError
from deltaworks.findings import Finding
from deltaworks.words.keeping import Raw

if TYPE_CHECKING:
    from deltaworks.engine.log import Logged

_DELTAS = {"integer": "int", "long": "bigint"}
"""What Delta calls a type, where that is not Spark's name of it."""
_CLEAR = 'Declare it again, or clear it away: docs/how-to/operate.md, "What is not declared any more"'
_OF_ENGINE = "ops"
"""The layer of tables that nobody declares."""


def other_tables(catalog: Catalog, lake: Path) -> Iterator[Finding]:
    """Tables whose rows are not as declared: an app suspends or refuses them when it starts.

    So are those whose last commit cannot be read, which tells no more than that.
    """
    for declared in catalog.tables.values():
        folder = folder_of(declared.name, lake)
        if not (folder / "_delta_log").is_dir():
            continue
        try:
            _last_commit(folder)
        except LakeError as error:
            yield Finding(place=declared.name, finding=error.finding, next_step=error.next_step)
        else:
            yield from _otherwise(declared, folder)


def undeclared_tables(names: Collection[str], lake: Path) -> dict[str, list[str]]:
    """Tables of the lake that are not among these names, each with what lies beside it."""
    found: dict[str, list[str]] = {}
    for log in sorted(lake.glob("[!.]*/[!.]*/_delta_log")):
        layer, table = log.parts[-3], log.parts[-2]
        of = f"{layer}.{table.partition('__')[0]}"
        if layer != _OF_ENGINE and of not in names:
            found.setdefault(of, []).append(f"{layer}.{table}")
    return found


def told_undeclared(names: Collection[str], lake: Path) -> Iterator[Finding]:
    """The same as findings: nobody writes or deletes these any more."""
    for name, folders in undeclared_tables(names, lake).items():
        more = len(folders) - (name in folders)
        beside = f", with {more} beside it" if more else ""
        yield Finding(
            place=name,
            finding=f"lies in the lake{beside}, and is not declared",
            next_step=_CLEAR,
        )


def unread_topics(catalog: Catalog, lake: Path) -> Iterator[Finding]:
    """Topics of which a bronze table has rows, and that it does not read any more."""
    for declared in catalog.tables.values():
        folder = folder_of(declared.name, lake)
        if not isinstance(declared.table.kept_as, Raw) or not (folder / "_delta_log").is_dir():
            continue
        try:
            logged = _last_commit(folder)
        except LakeError:  # told of the table
            continue
        read = set() if logged is None or logged.entry is None else {*logged.entry.position.offsets}
        for topic in sorted(read - {*declared.topics}):
            yield Finding(
                place=declared.name,
                finding=f"has rows of topic {topic}, which it does not read any more",
                next_step=_CLEAR,
            )


def everything(catalog: Catalog, lake: Path) -> list[Finding]:
    """All of this, in that order; nothing where there is no lake."""
    return [*other_tables(catalog, lake), *told_undeclared(catalog.tables.keys(), lake), *unread_topics(catalog, lake)]


def _last_commit(folder: Path) -> "Logged | None":
    """What the newest version says; raises LakeError where it is not whole, NewerEntryError where it says too much."""
    from deltaworks.engine.log import newest_version, read_log  # only where there is a lake: it takes a moment

    newest = newest_version(folder)
    return None if newest is None else read_log(folder, newest)


def _otherwise(declared: Declared, folder: Path) -> Iterator[Finding]:
    import deltalake  # as above
    from deltalake.exceptions import DeltaError

    try:
        delta = deltalake.DeltaTable(str(folder))
        fields, parts = json.loads(delta.schema().to_json())["fields"], delta.metadata().partition_columns
    except (DeltaError, OSError) as error:
        first = str(error).partition("\n")[0]
        yield Finding(place=declared.name, finding=f"cannot be opened ({first})", next_step="Bring its log back")
        return
    yield from _partitions(declared, parts)
    yield from _columns(declared, {field["name"]: _type(field["type"]) for field in fields})


def _type(of_delta: object) -> str:
    return _DELTAS.get(of_delta, of_delta) if isinstance(of_delta, str) else "nested"


def _partitions(declared: Declared, there: list[str]) -> Iterator[Finding]:
    by = hidden(declared)
    wanted = [] if by is None else [by]
    if there != wanted:
        told, found = (", ".join(names) or "none" for names in (wanted, there))
        yield Finding(
            place=declared.name,
            finding=f"declared with partitions by {told}, the table has {found}: its app does not start",
            next_step="Declare partition_by as it was, or move it and those that read it out of the lake",
        )


def _columns(declared: Declared, there: Mapping[str, str]) -> Iterator[Finding]:
    name, kept = declared.name, declared.table.kept_as
    if isinstance(kept, Raw):  # its columns are Kafka's
        return
    types = {column.name: column.type for column in declared.columns}
    gains, own = addable(declared), OWN.get(type(kept), {}).keys()
    rebuild = f'or run "deltaworks rebuild {name}" once its app was started'
    for column, wanted in types.items():
        if column not in there and column not in gains:
            finding = "declared, but not in the table"
        elif column in there and there[column] != wanted:
            finding = f"declared {wanted}, the table has {there[column]}"
        else:
            continue
        yield Finding(place=f"{name}.{column}", finding=finding, next_step=f"Declare it as it was, {rebuild}")
    for column in sorted(own - {*there} - gains):
        finding = "is not in the table, which was kept in another way"
        yield Finding(place=f"{name}.{column}", finding=finding, next_step=f"Declare kept_as as it was, {rebuild}")
    for column in sorted({*there} - {*types} - own - {hidden(declared), *_parted(there)}):
        finding = "in the table, not declared"
        yield Finding(place=f"{name}.{column}", finding=finding, next_step=f"Declare it, {rebuild}")


def _parted(there: Collection[str]) -> set[str]:
    """Hidden columns of partitions: told as such."""
    return {name for name in there if name.startswith((DAY_OF, PART_OF))}
