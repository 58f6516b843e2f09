"""Tables that were made elsewhere, or as they were long ago, take the place of those in the lake.

What was staged is each table **as of a place among its inputs**, in a lake of its own. The owner links its files into
the table's folder and puts them and that place into one commit; from there the table takes what has come since, as
after a restart. So nothing that arrived meanwhile is missing, nothing is there twice, and no row is written again.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from deltaworks.catalog import Catalog
from deltaworks.engine import disk
from deltaworks.engine.checker.picture import Held
from deltaworks.engine.commit import Clause, Committer, Merge
from deltaworks.engine.entry import Entry, Position
from deltaworks.engine.expiry import expire_staged
from deltaworks.engine.flow import Flow, Steps
from deltaworks.engine.folders import folder_of
from deltaworks.engine.lake import OwnedTable, all_there
from deltaworks.engine.linking import link_file
from deltaworks.engine.log import actions_of, checkpoints
from deltaworks.engine.same_input import epoch_of, other, placed
from deltaworks.engine.transforms import load_transform
from deltaworks.engine.writers.patches import SUFFIX
from deltaworks.engine.writers.quarantine import DECIDED, PLACE, QUARANTINE
from deltaworks.engine.writers.writer import Writer
from deltaworks.errors import CommandError, LakeError
from deltaworks.words.keeping import View
from deltaworks.words.reading import Json

UNDONE = frozenset({"publish", "late", "replay", "patch", "revise"})
"""Kinds of entries whose work a table that was staged before them does not have."""
SINCE = "since it was staged"
"""In the refusal of an order whose tables have been changed by another one: staged once more, it may pass."""
_ABOUT = "staged.json"
_AGAIN = "Order it again"


@dataclass(frozen=True, kw_only=True)
class Staged:
    """What lies in a folder: the tables, inputs first.

    `base`: by table, by input that is not among them and by table of patches, the version of the lake that was looked
    at. `code`: by table what made its rows (`made_by`), where the app must run with the same. `versions`: of inputs
    that are not among the tables the version that was taken. `whole`: whether that code made all rows. `back_to`: by
    table the version that it is, where it goes back to one.
    """

    tables: tuple[str, ...]
    base: Mapping[str, int]
    code: Mapping[str, str]
    versions: Mapping[str, int]
    whole: bool = False
    back_to: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Staged":
        """What lies there; raises LakeError if it is not whole."""
        try:
            found = json.loads((folder / _ABOUT).read_text())
        except FileNotFoundError:
            raise LakeError(str(folder), "nothing was staged there", _AGAIN) from None
        return cls(**{**found, "tables": tuple(found["tables"])})

    def write(self, folder: Path) -> None:
        """Say that all of it is there, also after a power cut."""
        disk.put(folder / _ABOUT, json.dumps(asdict(self)))


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A table, or one beside it, whose files are linked: the commit is all that is left."""

    into: OwnedTable
    found: Held | None
    files: tuple[AddAction, ...]


def with_those_above(catalog: Catalog, table: str) -> tuple[str, ...]:
    """The table and all tables that are made from it, inputs first."""
    found = {table}
    for declared in catalog.tables.values():
        if found.intersection(declared.inputs):
            found.add(declared.name)
    return tuple(name for name in catalog.tables if name in found)


def behind_topics(catalog: Catalog, tables: Iterable[str]) -> tuple[str, ...]:
    """Other tables that read what these publish, and all that are made from them, inputs first. Bronze is not named."""
    own = found = set(tables)
    while True:
        publishes = (catalog[name].table.publishes for name in found)
        topics = {outlet.topic for outlet in publishes if outlet is not None}
        reads = ((name, one.table.reads) for name, one in catalog.tables.items())
        read = [name for name, what in reads if isinstance(what, Json) and what.topic in topics]
        more = found.union(*(with_those_above(catalog, name) for name in read))
        if more == found:
            return tuple(name for name in catalog.tables if name in found - own)
        found = more


def publish(flow: Flow, folder: Path, *, command: int) -> Steps:
    """Put what was staged in a folder into the place of these tables' rows; the result says how many tables those are.

    All of it is one step: no table takes rows that another one has not got yet. Given again after a crash it goes on
    with the tables that have not got theirs. Raises CommandError where the app runs with other code than made them, or
    where something was ordered about these tables since they were staged.
    """
    yield from ()
    staged = Staged.read(folder)
    _refuse(flow, staged, folder, command)
    left = [name for name in staged.tables if not _has(flow.inputs[name].table.entry, folder)]
    ready = {name: _prepare(flow, name, folder / "lake") for name in left}  # what can fail does so before any commit
    versions = dict(staged.versions)
    # a view that was computed before its input's old rows went looks at the whole of it
    gone = {name: 0 for name in staged.tables if _staged(folder / "lake", name).entry.kind == "expire"}
    for name in staged.tables:
        if name in ready:
            here = {**versions, **gone} if isinstance(flow.catalog[name].table.kept_as, View) else versions
            try:
                _publish(flow, ready[name], folder, replace(staged, versions=here), command)
                flow.open_anew(name)
            except Exception as error:  # what it remembers is not what is committed
                flow.suspend(name, error)
                raise
        versions[name] = flow.inputs[name].table.entry.replaced_at
    return {"tables": len(staged.tables)}


def made_by(writer: Writer) -> str:
    """The hashes of the code and the rules that a writer was opened with."""
    return f"{writer.progress.code} {writer.progress.suite}"


def _refuse(flow: Flow, staged: Staged, folder: Path, command: int) -> None:
    writers = {writer.declared.name: writer for writer in flow.writers}
    for name in staged.tables:
        if name not in writers:
            raise CommandError(f"command {command}", f"app {flow.app} has no table {name}", _AGAIN)
        code = made_by(writers[name])
        if staged.code.get(name, code) != code:
            finding = f"{name} was staged by other code or rules than the app runs with"
            raise CommandError(f"command {command}", finding, f"Restart app {flow.app}, then order it again")
    if any(_has(flow.inputs[name].table.entry, folder) for name in staged.tables):
        return
    for name in with_those_above(flow.catalog, staged.tables[0]):
        above = flow.inputs[name].table.entry.position.versions if name in writers else {}
        if name not in staged.tables and any(above.values()):
            finding = f"{name} has taken rows of {staged.tables[0]} {SINCE}"
            raise CommandError(f"command {command}", finding, _AGAIN)
    for name, version in staged.base.items():
        table = next((one for one in flow.tables() if one.name == name), None)  # patches beside one may be gone
        unknown = 0 if table is None else table.version - version
        for entry in islice(table.entries_backwards(), max(unknown, 0)) if table is not None else ():
            unknown -= 1
            if entry.kind in UNDONE:
                finding = f"command {entry.command} has changed {name} {SINCE}"
                raise CommandError(f"command {command}", finding, _AGAIN)
        if unknown > 0:
            finding = f"nothing tells any more what was done to {name} {SINCE}"
            raise CommandError(f"command {command}", finding, _AGAIN)
    for name in staged.tables:
        _refuse_what_is_gone(flow, name, staged, folder / "lake", command)
        _refuse_other_bronze(flow, name, folder / "lake", command)


def _refuse_what_is_gone(flow: Flow, name: str, staged: Staged, lake: Path, command: int) -> None:
    """What an input that is not published too has brought since must be there; a view looks at what there is."""
    declared = flow.catalog[name]
    if isinstance(declared.table.kept_as, View):
        return
    position = _staged(lake, name).entry.position
    for source, at in _here(position, staged.versions).versions.items():
        if source in staged.tables or source not in flow.inputs or not at:
            continue
        table = flow.inputs[source].table
        if at < table.entry.replaced_at or not all_there(table.path, at, table.version):
            finding = f"what {source} has brought is not there any more, {SINCE}"
            raise CommandError(f"command {command}", finding, _AGAIN)


def _refuse_other_bronze(flow: Flow, name: str, lake: Path, command: int) -> None:
    """What was taken of bronze is what it has."""
    for source in _staged(lake, name).entry.position.batches:
        if source in flow.inputs and other(name, _staged(lake, name).entry, flow.inputs[source].table) is not None:
            raise CommandError(f"command {command}", f"{source} has been made anew, or put back, {SINCE}", _AGAIN)


def _prepare(flow: Flow, name: str, lake: Path) -> list[_Ready]:
    """Those beside a table first, its own closes the group."""
    own, made = flow.inputs[name].table, _staged(lake, name)
    declared = flow.catalog[name]
    if declared.transform is not None:
        load_transform(declared)
    ready = []
    beside = {path.name.partition("__")[2]: path for path in made.path.parent.glob(f"{made.path.name}__*")}
    for suffix in dict.fromkeys((*flow.sides.get(name, {}), *beside)):
        if suffix == SUFFIX:  # what somebody said of refused rows stands, whatever takes the place of others
            continue
        side, path = flow.side(name, suffix), beside.get(suffix)
        if side is None:  # the table was kept in another way then
            continue
        found = Held(side.name, path) if path is not None and DeltaTable.is_deltatable(str(path)) else None
        if suffix == "quarantine" and found is not None:
            found = _with_decisions(found, side)
        ready.append(_ready(side, found))
    committer = Committer(spark=None, arrow_bytes_max=flow.settings.arrow_bytes_max, guard=lambda: None)
    return [*ready, _ready(own, expire_staged(made, own, declared, committer=committer))]


def _staged(lake: Path, name: str) -> Held:
    return Held(name, folder_of(name, lake))


def _ready(into: OwnedTable, found: Held | None) -> _Ready:
    if found is None:
        return _Ready(into=into, found=None, files=())
    into.refuse_other_columns(pa.schema(found.delta.schema()))  # of a time when it had others
    return _Ready(into=into, found=found, files=tuple(_linked(found, into)))


def _publish(flow: Flow, group: list[_Ready], folder: Path, staged: Staged, command: int) -> None:
    made = group[-1].found
    assert made is not None
    position = _of_here(flow, _here(made.entry.position, staged.versions), staged.versions)
    committer = Committer(spark=None, arrow_bytes_max=flow.settings.arrow_bytes_max, guard=flow.guard)
    for one in group:
        into, then = one.into, Entry(kind="create", app="", epoch=0) if one.found is None else one.found.entry
        entry = into.entry.follow(
            "publish",
            command=command,
            counts=then.totals - into.entry.totals,
            position=position,
            ingest_seq=made.entry.ingest_seq,
            code=then.code if staged.whole else None,
            suite=then.suite if staged.whole else None,
            claimed=then.claimed,
            event_high=then.event_high,
            replaced=(into.version + 1, folder.name),
            back_to=staged.back_to.get(into.name),
        )
        schema = None
        if into.outdated is not None:
            schema = Schema.from_arrow(into.stored) if one.found is None else one.found.delta.schema()
        committer.replace(into, one.files, entry, schema=schema)


def _here(position: Position, versions: Mapping[str, int]) -> Position:
    """A place in the versions of this lake; who has taken nothing of an input takes what is there."""
    return replace(position, versions={of: versions.get(of, at) if at else at for of, at in position.versions.items()})


def _of_here(flow: Flow, position: Position, versions: Mapping[str, int]) -> Position:
    """A place that says of inputs whose versions are of this lake which tables of it they are."""
    here = {of: flow.inputs[of].table for of, at in position.versions.items() if at and of in versions}
    epochs = {of: epoch_of(table, position.versions[of], batch=False) for of, table in here.items()}
    others = {of: made for of, made in position.inputs.items() if of not in versions}
    position = replace(position, inputs=others, epochs={of: at for of, at in position.epochs.items() if of in others})
    return placed(position, {of: table.made for of, table in here.items()}, epochs)


def _has(entry: Entry, folder: Path) -> bool:
    return entry.replaced is not None and entry.replaced[1] == folder.name


def _linked(made: Held, into: OwnedTable) -> Iterator[AddAction]:
    """The files of a staged table, under new names in the table's folder: a commit cannot name one as gone and come."""
    for add in _added(made):
        source, name = made.path / unquote(add["path"]), f"part-{uuid.uuid4().hex}.parquet"
        link_file(source, into.path / name)
        yield AddAction(
            path=name,
            size=add["size"],
            partition_values=add.get("partitionValues") or {},
            modification_time=add["modificationTime"],
            data_change=True,
            stats=add.get("stats") or "{}",
        )


def _added(made: Held) -> Iterator[Mapping[str, Any]]:
    """What the log says of the files that are there: its last checkpoint, and the commits since."""
    there = set(made.files())
    whole = max((version for version in checkpoints(made.path) if version <= made.version), default=-1)
    for add in chain(_added_since(made, whole), _added_upto(made, whole)):
        if unquote(add["path"]) in there:
            there.remove(unquote(add["path"]))
            yield add
    if there:
        finding = f"its log does not tell of {len(there)} of its files"
        raise LakeError(made.name, finding, f'Run "deltaworks rebuild {made.name}" instead')


def _added_since(made: Held, checkpoint: int) -> Iterator[Mapping[str, Any]]:
    for version in range(made.version, checkpoint, -1):
        for action in actions_of(made.path, version):
            add = action.get("add")
            if add is not None:
                yield add


def _added_upto(made: Held, checkpoint: int) -> Iterator[Mapping[str, Any]]:
    for part in (made.path / "_delta_log").glob(f"{checkpoint:020d}.checkpoint*.parquet"):
        for batch in pq.ParquetFile(part).iter_batches(columns=["add"]):
            for add in batch.column("add").drop_null().to_pylist():
                yield {**add, "partitionValues": dict(add["partitionValues"])}


def _with_decisions(made: Held, own: OwnedTable) -> Held:
    """A staged quarantine in which rows that somebody has discarded are so too, where they are refused again."""
    decided = own.read([*PLACE, "state", "command"])
    decided = decided.filter(pc.equal(decided["state"], "discarded")).drop_columns(["state"])
    if not decided.num_rows:
        return made
    staged = OwnedTable(name=made.name, path=made.path, schema=QUARANTINE, entry=made.entry, addable=DECIDED)
    clause = Clause(on="matched", act="update", set={"state": "'discarded'", "command": "s.command"})
    committer = Committer(spark=None, arrow_bytes_max=own.bytes(), guard=lambda: None)
    committer.commit(staged, decided, staged.entry.follow("discard"), how=Merge(keys=PLACE, clauses=(clause,)))
    return Held(made.name, made.path)
