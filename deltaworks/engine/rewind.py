"""A table as it was at an earlier version, with those above it as they were then; `publish.py` brings it back.

From there each takes again what has come since, with the code and rules of now. No Spark here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from deltaworks.catalog import Catalog
from deltaworks.engine.checker.picture import Held
from deltaworks.engine.entry import Entry
from deltaworks.engine.lake import all_there
from deltaworks.engine.linking import link_table
from deltaworks.engine.log import read_log
from deltaworks.engine.publish import Staged, with_those_above
from deltaworks.engine.through import Lineage
from deltaworks.errors import LakeError
from deltaworks.words.keeping import Raw, View


@dataclass(frozen=True, kw_only=True)
class Past:
    """Where a table goes back to: from the newest version to an earlier one, committed then.

    `again`: how many rows of its inputs it has read since, which it takes again.
    """

    table: str
    newest: int
    version: int
    at: datetime | None
    again: int


VERSIONS_MAX = 20
"""So far back a version is looked for at which the tables above stood."""


def plan(table: str, *, catalog: Catalog, lake: Path, to: int | datetime) -> tuple[Past, ...]:
    """Which version each table goes back to; raises LakeError if this one cannot.

    A table above that never stood at just that version goes back to where it was empty, and is computed anew.
    """
    if isinstance(catalog[table].table.kept_as, Raw):
        raise LakeError(table, "is what came, and stays", "Name a table above it")
    lineage = Lineage(lake)
    newest = lineage.newest(table)
    version = _version_at(lineage, table, to) if isinstance(to, datetime) else to
    if not 0 <= version <= newest:
        raise LakeError(table, f"has no version {version}", f"Its versions are 0 to {newest}")
    chosen = {table: version}
    for name in with_those_above(catalog, table)[1:]:
        inputs = {one: lineage.as_good_as(one, chosen[one]) for one in catalog[name].inputs if one in chosen}
        last = lineage.newest(name)
        if not has_taken(lineage.entry(name, last), inputs):  # it takes what there is
            chosen[name] = last
            continue
        entries = ((at, lineage.entry(name, at)) for at in range(last, 0, -1))
        chosen[name] = next((at for at, entry in entries if _stands_at(lineage, entry, inputs)), 0)
    return tuple(_past(lineage, name, at) for name, at in chosen.items())


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
    rows = DeltaTable(str(lineage.path(bronze[0]))).to_pyarrow_dataset().to_table(columns=["_seq"], filter=which)
    first = pc.min(rows["_seq"]).as_py()
    if first is None:
        raise LakeError(bronze[0], "has nothing since then", f'See "deltaworks ledger {bronze[0]}"')
    for version in range(lineage.newest(table), -1, -1):
        entry = lineage.entry(table, version)
        if entry is None:
            break
        if entry.position.batches.get(bronze[0], 0) < first:
            return version
    raise LakeError(table, "its log does not go back so far", _rebuild(table))


def even(table: str, *, catalog: Catalog, lake: Path) -> tuple[Past, ...]:
    """The newest version of a table at which those above it stood; raises LakeError if none is near."""
    newest = Lineage(lake).newest(table)
    for version in range(newest, max(newest - VERSIONS_MAX, 0), -1):
        found = plan(table, catalog=catalog, lake=lake, to=version)
        if all(one.version or not one.newest for one in found):
            return found
    finding = f"the tables above it stood at none of its last {VERSIONS_MAX} versions"
    raise LakeError(table, finding, "Try again in a moment; an app that is drained is always even")


def stage(past: tuple[Past, ...], *, catalog: Catalog, lake: Path, folder: Path) -> Staged:
    """Stage the tables as they were in a folder; raises LakeError where files are gone."""
    _refuse_what_is_gone(past[0], catalog, lake)  # the others read those before them
    lay_out(past, lake=lake, into=folder / "lake")
    staged = Staged(tables=tuple(one.table for one in past), code={}, versions={})
    staged.write(folder)
    return staged


def lay_out(past: tuple[Past, ...], *, lake: Path, into: Path) -> None:
    """Link the tables as they were, with those beside, into an empty lake; raises LakeError where files are gone."""
    for one in past:
        path = lake / one.table.replace(".", "/", 1)
        for held in (*_beside(path, one), Held(one.table, path, one.version)):
            try:
                link_table(held, into)
            except FileNotFoundError:
                finding = f"files of its version {held.version} were deleted"
                raise LakeError(held.name, finding, _rebuild(one.table)) from None


def _version_at(lineage: Lineage, table: str, moment: datetime) -> int:
    """The newest version that was committed by then."""
    for version in range(lineage.newest(table), -1, -1):
        logged = read_log(lineage.path(table), version)
        if logged is None:
            raise LakeError(table, f"its log begins at version {version + 1}, after that time", _rebuild(table))
        if logged.at is not None and logged.at <= moment:
            return version
    raise LakeError(table, "was made after that time", "Name a later time")


def has_taken(entry: Entry | None, inputs: Iterable[str]) -> bool:
    """Whether a table has taken anything of these inputs yet."""
    return entry is not None and any(entry.position.versions.get(one) for one in inputs)


def _stands_at(lineage: Lineage, entry: Entry | None, inputs: Mapping[str, int]) -> bool:
    taken = {} if entry is None else entry.position.versions
    return all(lineage.as_good_as(source, taken.get(source, 0)) == at for source, at in inputs.items())


def _past(lineage: Lineage, name: str, version: int) -> Past:
    newest = lineage.newest(name)
    then, now = (lineage.entry(name, at) for at in (version, newest))
    if then is None or now is None:
        raise LakeError(name, f"neither its log nor ops.ledger has version {version}", _rebuild(name))
    logged = read_log(lineage.path(name), version)
    again = now.totals.read - then.totals.read
    return Past(table=name, newest=newest, version=version, at=None if logged is None else logged.at, again=again)


def _beside(path: Path, one: Past) -> Iterator[Held]:
    """The tables beside one, as they were when its version was committed: theirs come first."""
    logged = read_log(path, one.version)
    if logged is None or logged.at is None or logged.entry is None:
        raise LakeError(one.table, f"its log has no version {one.version}", _rebuild(one.table))
    for side in sorted(path.parent.glob(f"{path.name}__*")):
        name, version = f"{path.parent.name}.{side.name}", Held(side.name, side).version
        while version >= 0:
            found = read_log(side, version)
            if found is None:
                raise LakeError(name, f"its log has no version {version}", _rebuild(one.table))
            if found.at is not None and found.at <= logged.at:
                break
            version -= 1
        if version >= 0:  # else it was made later
            yield Held(name, side, version)


def _refuse_what_is_gone(one: Past, catalog: Catalog, lake: Path) -> None:
    """What an input that stays has added since must be there, to be taken again; a view looks at what there is."""
    declared, lineage = catalog[one.table], Lineage(lake)
    entry = lineage.entry(one.table, one.version)
    if entry is None or isinstance(declared.table.kept_as, View):
        return
    for source, taken in entry.position.versions.items():
        now = lineage.entry(source, newest := lineage.newest(source))
        if now is None or taken < (now.replaced_at or 0) or not all_there(lineage.path(source), taken, newest):
            finding = f"what {source} has brought since its version {taken} is not there any more"
            raise LakeError(one.table, finding, _rebuild(one.table))


def _rebuild(table: str) -> str:
    return f'Run "deltaworks rebuild {table}" instead'
