"""A table as it was at an earlier version, with those above it as they were then; `publish.py` brings it back.

From there each takes again what has come since, with the code and rules of now. No session is needed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from deltaworks.catalog import Catalog
from deltaworks.engine.checker.picture import Held
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import ROW_KINDS, Entry, ahead
from deltaworks.engine.folders import folder_of
from deltaworks.engine.lake import all_there
from deltaworks.engine.linking import lay_empty, link_table, refuse_deleted
from deltaworks.engine.log import committed_at, opens_from, read_log, version_at
from deltaworks.engine.publish import UNDONE, Staged, with_those_above
from deltaworks.engine.same_input import refuse_others
from deltaworks.engine.through import Lineage
from deltaworks.engine.writers.patches import SUFFIX
from deltaworks.errors import LakeError
from deltaworks.words.keeping import Raw, View

VERSIONS_MAX = 20
"""So far back a version is looked for at which the tables above stood."""
_NEAR = 1_000
"""A table above that is not behind stood at one of the last versions within so many of its own commits."""
_DECISIONS = frozenset({"accept", "replay", "discard", "late", "publish", "revise"})
"""Kinds of entries by which somebody decided something that a rewind undoes."""
_SET_BACK = 5_000
"""So many commits before a version, and after it, are looked at for a clock that was set back: some hours of a table
that changes always."""
_UNNUMBERED = frozenset({"claim", "release", "discard", "expire", "redo"})
"""Kinds of entries beside a table that change rows there and bring none: those that do not say when that was have only
their time to tell."""


@dataclass(frozen=True, kw_only=True)
class Rewind:
    """Where a table goes back to: from the newest version to an earlier one, committed then.

    `again`: how many rows of its inputs it has read since, which it takes again. `undone`: orders about it that were
    carried out since, by their numbers.
    """

    table: str
    newest: int
    version: int
    at: datetime | None
    again: int
    undone: tuple[int, ...]


def plan(table: str, *, catalog: Catalog, lake: Path, to: int | datetime) -> tuple[Rewind, ...]:
    """Which version each table goes back to; raises LakeError if this one cannot, or where files are gone.

    A table above that never stood at just that version, as far as its log tells, goes back to where it was empty, and
    is computed anew.
    """
    if isinstance(catalog[table].table.kept_as, Raw):
        raise LakeError(table, "is what came, and stays", "Name a table above it")
    lineage = Lineage(lake)
    newest = lineage.newest(table)
    version = _version_at(lineage, table, to) if isinstance(to, datetime) else to
    if not 0 <= version <= newest:
        raise LakeError(table, f"has no version {version}", f"Its versions are 0 to {newest}")
    if version < (first := opens_from(lineage.path(table))):
        finding = f"cannot go back to version {version}: neither its log nor its past has it any more"
        raise LakeError(table, finding, f"Versions from {first} on are possible, or: {_rebuild(table)}")
    rewinds = tuple(_rewind(lineage, name, at) for name, at in _together(lineage, catalog, table, version).items())
    for one in rewinds:
        refuse_other_inputs(lineage, catalog, one.table, one.version)
        _refuse_what_is_gone(one, catalog, lake, tuple(other.table for other in rewinds))
        for held in _as_it_was(one, lake):
            refuse_deleted(held)
    return rewinds


def before(table: str, *, catalog: Catalog, lake: Path, since: tuple[str, int, int] | datetime) -> int:
    """The newest version of a table over bronze that has nothing of what arrived since a record, or since a time.

    `since`: topic, partition and offset of the record, or a time by the broker's clock. Raises LakeError where nothing
    arrived since then, or the table is over other tables.
    """
    bronze = catalog[table].inputs[:1]
    if not bronze or not isinstance(catalog[bronze[0]].table.kept_as, Raw):
        raise LakeError(table, "does not read bronze itself", "Name a table over bronze; those above follow it")
    if isinstance(since, datetime):
        which = ds.field("timestamp") >= pa.scalar(since, pa.timestamp("us", "UTC"))
    else:
        topic, partition, offset = since
        which = (ds.field("topic") == topic) & (ds.field("partition") == partition) & (ds.field("offset") >= offset)
    lineage = Lineage(lake)
    rows = dataset_of(DeltaTable(str(lineage.path(bronze[0])))).to_table(columns=["_seq"], filter=which)
    first = pc.min(rows["_seq"]).as_py()
    if first is None:
        raise LakeError(bronze[0], "has nothing since then", f'See "deltaworks ledger {bronze[0]}"')
    for version in range(lineage.newest(table), opens_from(lineage.path(table)) - 1, -1):
        entry = lineage.entry(table, version)
        if entry is not None and entry.position.batches.get(bronze[0], 0) < first:
            _refuse_before_publication(lineage, table, version)
            return version
    raise LakeError(table, "neither its log nor its past goes back so far", _rebuild(table))


def _refuse_before_publication(lineage: Lineage, table: str, version: int) -> None:
    last = lineage.entry(table, lineage.newest(table))
    if last is not None and version < last.replaced_at:
        finding = f"was computed again in version {last.replaced_at}, which would be undone"
        raise LakeError(table, finding, f'Backfill or rebuild it, or run "deltaworks rewind {table} --to {version}"')


def even(table: str, *, catalog: Catalog, lake: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The newest versions of a table and those above it at which they stood together, and of their other inputs.

    Raises LakeError if there are none near: a table above is behind.
    """
    lineage = Lineage(lake)
    newest = lineage.newest(table)
    for version in range(newest, max(newest - VERSIONS_MAX, -1), -1):
        found = _together(lineage, catalog, table, version, commits_max=_NEAR)
        others = _others(lineage, catalog, found)
        # at version 0 it would be computed anew
        if others is None or any(not at and lineage.newest(name) for name, at in found.items() if name != table):
            continue
        if not any(_changed_since(lineage, name, at) for name, at in (others | found).items()):
            for name, at in found.items():
                refuse_other_inputs(lineage, catalog, name, at)
            return found, others
    finding = f"the tables above it stood at none of its last {VERSIONS_MAX} versions"
    raise LakeError(table, finding, 'Try again when none is behind or suspended: "deltaworks app status"')


def refuse_other_inputs(lineage: Lineage, catalog: Catalog, name: str, version: int) -> None:
    """What a version of a table had taken must be what its inputs have."""
    entry = lineage.entry(name, version)
    paths = [(source, lineage.path(source)) for source in catalog[name].inputs]
    there = [Held(source, path) for source, path in paths if DeltaTable.is_deltatable(str(path))]
    if entry is not None:
        refuse_others(name, entry, there)


def _changed_since(lineage: Lineage, name: str, version: int) -> bool:
    entries = (lineage.entry(name, at) for at in range(version + 1, lineage.newest(name) + 1))
    return any(entry is not None and entry.kind in UNDONE for entry in entries)


def stage(rewinds: tuple[Rewind, ...], *, catalog: Catalog, lake: Path, folder: Path) -> Staged:
    """Stage the tables as they were in a folder; raises LakeError where files are gone."""
    names = tuple(one.table for one in rewinds)
    for one in rewinds:
        _refuse_what_is_gone(one, catalog, lake, names)  # asked again: a VACUUM may have come since the plan
        if _is_empty(one, path := folder_of(one.table, lake)):
            lay_empty(Held(one.table, path), folder / "lake")
        for held in _as_it_was(one, lake):
            link_table(held, folder / "lake")
    staged = Staged(
        tables=names,
        base={one.table: one.newest for one in rewinds},
        code={},
        versions={},
        back_to={one.table: one.version for one in rewinds},
    )
    staged.write(folder)
    return staged


def _is_empty(one: Rewind, path: Path) -> bool:
    """Whether a table goes back to where it had taken nothing, which its log does not tell any more."""
    return not one.version and bool(opens_from(path))


def _as_it_was(one: Rewind, lake: Path) -> Iterator[Held]:
    """The table, and those beside it; nothing is beside a table that has taken nothing."""
    if not _is_empty(one, folder_of(one.table, lake)):
        yield from laid_out(lake, one.table, one.version)


def laid_out(lake: Path, table: str, version: int) -> Iterator[Held]:
    """A table at a version, and the tables beside it as they were then: none has rows that it had not taken.

    Without its patches: they stand whatever is undone. Raises LakeError where the log does not tell how they were.
    """
    path = folder_of(table, lake)
    logged = read_log(path, version)
    if logged is None or logged.entry is None:
        raise LakeError(table, f"version {version} is not kept any more", _rebuild(table))
    main = Held(table, path, version)
    yield main
    for side in sorted(path.parent.glob(f"{path.name}__*")):
        if side.name != f"{path.name}__{SUFFIX}":
            name = f"{path.parent.name}.{side.name}"
            at = _then(Held(name, side), main, logged.entry)
            if at is not None:
                yield Held(name, side, at)


def _then(side: Held, main: Held, entry: Entry) -> int | None:
    """The newest version of a table beside another that came before a version of that one; None if none did.

    It has no rows that the other had not taken: its owner may have died between the two. Entries say which came before
    which, whatever clocks said then; of those that are from before they did, times must tell.
    """
    of_tables, came_before = "_version" in side.schema.names, False
    for at, found in _backwards(side, side.version, main):
        if found.beside is None and not came_before:
            return _then_by_time(side, at, main, entry, of_tables=of_tables)
        came_before = found.beside is None or found.beside < main.version
        if came_before and not ahead(found, entry, of_tables=of_tables):
            return at
    return None


def _then_by_time(side: Held, version: int, main: Held, entry: Entry, *, of_tables: bool) -> int | None:
    """The same, up to a version, where entries do not say it; raises LakeError where times do not tell it either."""
    path, mine = main.path, committed_at(main.path, main.version)
    # where a clock was set back, times do not rise: what lies beside it was committed before one of the table's commits
    since = max(opens_from(path), main.version - _SET_BACK)
    until = max(committed_at(path, at) for at in range(since, main.version + 1))
    later = range(main.version + 1, min(Held(main.name, path).version, main.version + _SET_BACK) + 1)
    sure = None if any(committed_at(path, at) < mine for at in later) else mine
    for at, found in _backwards(side, version, main):
        logged = read_log(side.path, at)
        if logged is None or logged.at is None or logged.at > until or ahead(found, entry, of_tables=of_tables):
            continue  # it was made later
        if (unknown := _unnumbered(side.path, at, sure, entry, of_tables=of_tables)) is not None:
            finding = f"whether its version {unknown} came before version {main.version} of {main.name} cannot be told"
            next_step = f"Try another version, or again after some batches, or: {_rebuild(main.name)}"
            raise LakeError(side.name, f"a clock was set back: {finding}", next_step)
        return at
    return None


def _backwards(side: Held, version: int, main: Held) -> Iterator[tuple[int, Entry]]:
    """The versions up to this one that can be opened, newest first; raises LakeError below them."""
    first = opens_from(side.path)
    for at in range(version, -1, -1):
        found = read_log(side.path, at)
        if found is None or found.entry is None or at < first:
            raise LakeError(side.name, f"version {at} is not kept any more", _rebuild(main.name))
        yield at, found.entry


def _unnumbered(side: Path, version: int, sure: datetime | None, main: Entry, *, of_tables: bool) -> int | None:
    """The newest version, up to this one, that may have changed rows of a side after its table was as `main` says.

    Back to the last rows that the table had taken: what is older came before them. `sure`: up to this time it came
    before; None where times tell nothing.
    """
    while (found := read_log(side, version)) is not None and found.entry is not None:
        if found.entry.kind in ROW_KINDS and not ahead(found.entry, main, of_tables=of_tables):
            break
        if found.entry.kind in _UNNUMBERED and (sure is None or found.at is None or found.at > sure):
            return version
        version -= 1
    return None


def _version_at(lineage: Lineage, table: str, moment: datetime) -> int:
    """The newest version that was committed by then."""
    version = version_at(lineage.path(table), moment)
    if version is not None:
        return version
    if first := opens_from(lineage.path(table)):
        raise LakeError(table, f"what is told of it begins at version {first}, after that time", _rebuild(table))
    raise LakeError(table, "was made after that time", "Name a later time")


def _together(
    lineage: Lineage, catalog: Catalog, table: str, version: int, *, commits_max: int | None = None
) -> dict[str, int]:
    """Which version of each table above belongs to a version: its newest with just that, else 0, where it was empty.

    `commits_max`: so far back it is looked for; None for as far as can be.
    """
    chosen = {table: version}
    for name in with_those_above(catalog, table)[1:]:
        inputs = {one: lineage.as_good_as(one, chosen[one]) for one in catalog[name].inputs if one in chosen}
        last = lineage.newest(name)
        taken = lineage.entry(name, last)
        if taken is not None and not any(taken.position.versions.get(one) for one in inputs):
            chosen[name] = last  # it has taken nothing of them yet, and takes what there is
            continue
        first = max(opens_from(lineage.path(name)), 1, 0 if commits_max is None else last - commits_max)
        entries = ((at, lineage.entry(name, at)) for at in range(last, first - 1, -1))
        chosen[name] = next((at for at, entry in entries if _stands_at(lineage, entry, inputs)), 0)
    return chosen


def _stands_at(lineage: Lineage, entry: Entry | None, inputs: Mapping[str, int]) -> bool:
    taken = {} if entry is None else entry.position.versions
    return all(lineage.as_good_as(source, taken.get(source, 0)) == at for source, at in inputs.items())


def _others(lineage: Lineage, catalog: Catalog, chosen: Mapping[str, int]) -> dict[str, int] | None:
    """The versions that these have taken of tables that are not among them; None where two disagree."""
    found: dict[str, int] = {}
    for name, version in chosen.items():
        entry = lineage.entry(name, version)
        for source, taken in entry.position.versions.items() if entry is not None else ():
            if source in chosen or source not in catalog[name].inputs:
                continue
            at = lineage.as_good_as(source, taken)
            if found.setdefault(source, at) != at:
                return None
    return found


def _rewind(lineage: Lineage, name: str, version: int) -> Rewind:
    newest = lineage.newest(name)
    then, now = (lineage.entry(name, at) for at in (version, newest))
    logged = read_log(lineage.path(name), version)
    if now is None or (version and (then is None or logged is None)):
        raise LakeError(name, f"version {version} is not kept any more", _rebuild(name))
    at, read = None if logged is None else logged.at, 0 if then is None else then.totals.read
    return Rewind(
        table=name, newest=newest, version=version, at=at, again=now.totals.read - read,
        undone=tuple(sorted(set(_decided_since(lineage, name, version, at)))),
    )  # fmt: skip


def _decided_since(lineage: Lineage, name: str, version: int, at: datetime | None) -> Iterator[int]:
    """Orders about a table that were carried out after a version of it, which was committed then."""
    for one in (name, f"{name}__quarantine"):
        there = DeltaTable.is_deltatable(str(lineage.path(one)))
        for logged in lineage.commits(one) if there else ():
            entry = logged.entry
            if entry is None:
                continue
            if one == name:
                before = logged.version <= version
            elif entry.beside is not None:
                before = entry.beside < version
            else:  # of a time when entries did not say so
                before = at is not None and logged.at is not None and logged.at <= at
            if before:
                break
            if entry.kind in _DECISIONS and entry.command:
                yield entry.command


def _refuse_what_is_gone(one: Rewind, catalog: Catalog, lake: Path, names: tuple[str, ...]) -> None:
    """What an input that stays has added since must be there, to be taken again; a view looks at what there is."""
    declared, lineage = catalog[one.table], Lineage(lake)
    entry = lineage.entry(one.table, one.version)
    if entry is None or isinstance(declared.table.kept_as, View):
        return
    for source, taken in entry.position.versions.items():
        if source in names or not taken:
            continue
        now = lineage.entry(source, newest := lineage.newest(source))
        if now is None or taken < now.replaced_at or not all_there(lineage.path(source), taken, newest):
            finding = f"what {source} has brought since its version {taken} is not there any more"
            raise LakeError(one.table, finding, _rebuild(one.table))


def _rebuild(table: str) -> str:
    return f'Run "deltaworks rebuild {table}" instead'
