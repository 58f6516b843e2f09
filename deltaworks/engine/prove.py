"""`prove`: what a stream has made of bronze is what a batch makes of it.

A version of the table is chosen whose inputs had come equally far by all ways that lead to it. Up to there bronze is
taken again, in a lake of its own, by the same code in other slices, and the two tables are compared key by key. Nothing
of the lake that is proved is written, and its stream may go on meanwhile.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Self

import deltalake
import duckdb
from pyspark.sql import SparkSession

from deltaworks.catalog import Catalog, Declared
from deltaworks.engine.checker.picture import MEMORY, Held, columns, named
from deltaworks.engine.checker.replay import NOT_COMPARED, as_streamed, left_out_again, use_late_again
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import ROW_KINDS, Unfit
from deltaworks.engine.flow import Flow
from deltaworks.engine.folders import folder_of
from deltaworks.engine.linking import link_table
from deltaworks.engine.rewind import laid_out, refuse_other_inputs
from deltaworks.engine.through import Lineage
from deltaworks.engine.writers.append import AppendWriter
from deltaworks.engine.writers.over_bronze import OverBronze
from deltaworks.engine.writers.patches import used_by
from deltaworks.engine.writers.quarantine import Place
from deltaworks.engine.writers.writer import code_of, suite_of
from deltaworks.errors import LakeError
from deltaworks.settings import Settings
from deltaworks.words.keeping import Append, History, Raw
from deltaworks.words.reading import Debezium, Json

KEYS_MIN = 1_000
"""Fewer equal keys are no proof."""
SHOWN = 5
"""So many differing keys are shown, and so many rows behind each."""
VERSIONS_MAX = 200
"""So far back a version is looked for whose inputs had come equally far."""
_AGAIN = "Run it again in a moment; an app that is drained is always even"


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A version of a table, and how far those had come that it was made from.

    `batches`, `versions`: per table over bronze the last ingest batch, and its own version. `uses`: per other table,
    itself included, how often it had used rows that came too late. `unfit`: per such table what it left out.
    `kept_from`: per table the event time before which rows had expired.
    """

    table: str
    version: int
    batches: dict[str, int]
    versions: dict[str, int]
    uses: dict[str, int]
    unfit: dict[str, tuple[Unfit, ...]]
    kept_from: dict[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A key whose rows differ: as streamed, as recomputed (None: not there), and the inputs' rows behind them."""

    key: Mapping[str, Any]
    streamed: Mapping[str, Any] | None
    recomputed: Mapping[str, Any] | None
    behind: Mapping[str, list[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What came out: how many keys were compared, how many are missing from the stream, more, or with other values.

    `left_out`: per table on the way how many rows it could not compute, which both sides lack. `changed`: tables on the
    way whose code or rules have changed since they took some of these rows. `first`: the first keys that differ.
    """

    table: str
    version: int
    keys: int
    missing: int
    more: int
    other: int
    keys_min: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    first: tuple[Difference, ...] = ()

    @property
    def verdict(self) -> str:
        """`differs`, `too little to prove`, or `proved`."""
        if self.missing or self.more or self.other:
            return "differs"
        return "proved" if self.keys >= self.keys_min else "too little to prove"


def prove(
    table: str, *, catalog: Catalog, lake: Path, spark: SparkSession, anew: Settings, keys_min: int = KEYS_MIN
) -> Proof:
    """Recompute the table into the empty lake of `anew` and compare; raises LakeError if it cannot be told."""
    declared = catalog[table]
    if isinstance(declared.table.kept_as, Raw):
        raise LakeError(table, "is what came, computed from nothing", 'Its offsets are in "deltaworks ledger"')
    lineage = Lineage(lake)
    for name in _way(catalog, table):
        refuse_other_inputs(lineage, catalog, name, lineage.newest(name))
    cut = even_cut(lineage, catalog, table)
    # opened before the work, for which the log may not wait
    streamed = dataset_of(deltalake.DeltaTable(str(lineage.path(table)), version=cut.version))
    _recompute(cut, catalog, lake, spark, anew)
    with _Compared(catalog, streamed, anew.lake, cut) as compared:
        missing, more, other = compared.differing()
        return Proof(
            table=table,
            version=cut.version,
            keys=compared.keys(),
            missing=missing,
            more=more,
            other=other,
            keys_min=keys_min,
            left_out={name: len(unfit) for name, unfit in cut.unfit.items() if unfit},
            changed=_changed(lineage, catalog, cut),
            first=tuple(compared.first()) if missing or more or other else (),
        )


def even_cut(lineage: Lineage, catalog: Catalog, table: str) -> Cut:
    """The newest version of the table whose inputs had come equally far; raises LakeError if none is near."""
    newest = lineage.newest(table)
    for version in range(newest, max(newest - VERSIONS_MAX, -1), -1):
        cut = Cut(table=table, version=version, batches={}, versions={}, uses={}, unfit={})
        if _gather(lineage, catalog, table, version, cut):
            return cut
    raise LakeError(table, f"its inputs have not come equally far in its last {VERSIONS_MAX} versions", _AGAIN)


def _gather(lineage: Lineage, catalog: Catalog, table: str, version: int, cut: Cut) -> bool:
    """Note how far each table had come that leads to this version; False where two ways disagree."""
    declared = catalog[table]
    # what came after this version and brought no rows is in it too
    last = lineage.as_good_as(table, version)
    entry = lineage.entry(table, last)
    if entry is None:
        raise LakeError(table, f"neither its log nor ops.ledger has version {version}", "It cannot be told any more")
    position = entry.position
    if cut.kept_from.setdefault(table, position.kept_from) != position.kept_from:
        return False
    if isinstance(catalog[declared.inputs[0]].table.kept_as, Raw):
        taken = position.batches.get(declared.inputs[0], 0)
        cut.versions[table] = last
        return cut.batches.setdefault(table, taken) == taken
    used = (position.applied or (0, 0))[0]
    if cut.uses.setdefault(table, used) != used or cut.unfit.setdefault(table, position.unfit) != position.unfit:
        return False
    return all(_gather(lineage, catalog, source, position.versions.get(source, 0), cut) for source in declared.inputs)


def _way(catalog: Catalog, table: str) -> list[str]:
    """The table and all tables that lead to it, inputs first; without bronze."""
    below = {table}
    for declared in reversed(list(catalog.tables.values())):
        if declared.name in below:
            below.update(declared.inputs)
    return [one.name for one in catalog.tables.values() if one.name in below and one.inputs]


def _recompute(cut: Cut, catalog: Catalog, lake: Path, spark: SparkSession, anew: Settings) -> None:
    bronze = [Held(name, folder_of(name, lake)) for name in {catalog[over].inputs[0] for over in cut.batches}]
    for held in bronze:
        link_table(held, anew.lake)
    app, epoch = catalog[cut.table].table.app, 1 + max(held.entry.epoch for held in bronze)
    flow = Flow(app=app, epoch=epoch, catalog=catalog, settings=anew, guard=lambda: None, suspends=False)
    flow.fence()
    as_streamed(flow, lake)
    left_out_again(flow, cut.unfit)
    writers = {writer.declared.name: writer for writer in flow.writers}
    for name, until in cut.batches.items():  # first of all: the logs that tell may not wait for the work
        writer = writers[name]
        assert isinstance(writer, OverBronze)
        writer.until, writer.patched = until, _used(cut, writer, lake) if writer.patched else {}
    for name in _way(catalog, cut.table):
        writer = writers[name]
        while writer.behind():
            flow.take_slice(name, spark)
        use_late_again(flow, name, spark, lake, uses=cut.uses.get(name, 0))
        flow.expire_before(name, cut.kept_from.get(name), command=0)


def _used(cut: Cut, writer: OverBronze, lake: Path) -> dict[Place, bytes | None]:
    """The patches that a table over bronze had used by then: its quarantine of then tells."""
    name = writer.declared.name
    held = {one.name: one.delta for one in laid_out(lake, name, cut.versions[name])}
    if (aside := held.get(f"{name}__quarantine")) is None:
        return {}
    events = held[name] if isinstance(writer, AppendWriter) else None
    return used_by(lake, name, aside, upto=cut.batches[name], events=events)


def _changed(lineage: Lineage, catalog: Catalog, cut: Cut) -> tuple[str, ...]:
    """Tables on the way of which some rows were judged by other code, or another suite, than there is now."""
    found = []
    for name in _way(catalog, cut.table):
        declared = catalog[name]
        parses = isinstance(declared.table.reads, Json | Debezium)  # elsewhere no rule judges rows
        rules = suite_of(declared) if parses else None
        for entry in lineage.entries(name):
            same = (entry.code, None if rules is None else entry.suite) == (code_of(declared), rules)
            if entry.kind in ROW_KINDS and not same:
                found.append(name)
            if found[-1:] == [name] or (entry.kind == "publish" and same):  # one that made all rows says so
                break
    return tuple(found)


class _Compared:
    """The streamed table and the recomputed one beside each other."""

    def __init__(self, catalog: Catalog, streamed: ds.Dataset, anew: Path, cut: Cut) -> None:
        self.catalog, self.declared, self.anew = catalog, catalog[cut.table], anew
        self.recomputed = dataset_of(deltalake.DeltaTable(str(folder_of(cut.table, anew))))
        self.connection = duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(anew.parent)})
        self.connection.execute("set disabled_optimizers = 'filter_pushdown,join_filter_pushdown'")  # see the checker's
        self.connection.register("streamed", streamed)
        self.connection.register("recomputed", self.recomputed)
        self.by = identity(self.declared)
        there = set(streamed.schema.names) & set(self.recomputed.schema.names)
        self.names = [name for name in self.recomputed.schema.names if name in there and name not in NOT_COMPARED]
        rest = [name for name in self.names if name not in self.by]
        same = " and ".join(f"_s.{named(name)} is not distinct from _r.{named(name)}" for name in rest) or "true"
        on = " and ".join(f"_s.{named(name)} is not distinct from _r.{named(name)}" for name in self.by)
        # a row that is there twice has no second one to meet
        shown = f"{columns(self.names)}, row_number() over (partition by {columns(list(self.by))}) as _nth"
        self.connection.execute(
            f"create view differing as select _s as streamed, _r as recomputed from"  # noqa: S608  # names of columns, quoted
            f" (select {shown}, true as _there from streamed) _s full join"
            f" (select {shown}, true as _there from recomputed) _r on {on} and _s._nth = _r._nth"
            f" where _s._there is null or _r._there is null or not ({same})"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def keys(self) -> int:
        """How many keys there are, on either side."""
        by = columns(list(self.by))
        either = f"select {by} from streamed union select {by} from recomputed"  # noqa: S608  # names of columns, quoted
        return self._one(f"select count(*) from ({either})")  # noqa: S608  # the line above

    def differing(self) -> tuple[int, int, int]:
        """Keys that the stream lacks, that only it has, and those with other values."""
        return (
            self._one("select count(*) from differing where streamed._there is null"),
            self._one("select count(*) from differing where recomputed._there is null"),
            self._one("select count(*) from differing where streamed._there and recomputed._there"),
        )

    def first(self) -> Iterator[Difference]:
        """The first keys that differ, in their own order."""
        order = ", ".join(f"coalesce(streamed.{named(name)}, recomputed.{named(name)})" for name in self.by)
        found = self.connection.execute(
            f"select streamed, recomputed from differing order by {order} limit {SHOWN}"  # noqa: S608  # names of columns, quoted
        ).fetchall()
        for pair in found:
            streamed, recomputed = (self._row(one) for one in pair)
            either = streamed or recomputed or {}
            key = {name: either[name] for name in self.by}
            yield Difference(key=key, streamed=streamed, recomputed=recomputed, behind=self._behind(either))

    def _row(self, row: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if row is None or row["_there"] is None:
            return None
        return {name: value for name, value in row.items() if name not in ("_nth", "_there")}

    def _behind(self, row: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
        """Per input rows that have the same values where columns are named alike, the nearest in time first."""
        if "_source" in row:  # of a table over bronze: where it is in Kafka, or in the log of the database
            return {}
        found: dict[str, list[Mapping[str, Any]]] = {}
        for source in self.declared.inputs:
            data = dataset_of(deltalake.DeltaTable(str(folder_of(source, self.anew))))
            self.connection.register("source", data)
            alike = [name for name in self.declared.keys if name in data.schema.names and row[name] is not None]
            where = " and ".join(f"{named(name)} = ?" for name in alike) or "true"
            values, order = [row[name] for name in alike], ""
            time = next(
                (row[key] for key in self.declared.keys if key not in alike and isinstance(row[key], date)), None
            )
            event_time = self.catalog[source].table.event_time
            if time is not None and event_time is not None:
                order = f"order by abs(epoch({named(event_time)}) - epoch(?))"
                values.append(time)
            if not values:
                continue
            rows = self.connection.execute(f"select * from source where {where} {order} limit {SHOWN}", values)  # noqa: S608  # names of columns, quoted
            names = [column[0] for column in rows.description or ()]
            found[source] = [dict(zip(names, one, strict=True)) for one in rows.fetchall()]
        return found

    def _one(self, sql: str) -> int:
        found = self.connection.execute(sql).fetchone()
        assert found is not None
        return int(found[0])


def identity(declared: Declared) -> tuple[str, ...]:
    """What tells the rows of a table apart."""
    match declared.table.kept_as:
        case Append():
            return ("_source",)
        case History():
            return (*declared.keys, "_source")
    return declared.keys
