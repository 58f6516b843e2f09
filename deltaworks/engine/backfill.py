"""Ranges of event time of a table computed again by the code and rules of now; the tables above follow what changed.

The tables are laid out as they are in a lake of their own. There the ingest batches that may have events of the range
are taken again from bronze, whole, by the app's own writers; of a table that is computed, the groups, stretches or keys
of the range are computed again from its inputs as they are. Rows that come out as they were count for nothing. What
gave way, and what came for it, leads to the groups, stretches and keys above that are computed again.
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from deltaworks.catalog import Catalog, Declared
from deltaworks.engine.checker.picture import MEMORY, Held
from deltaworks.engine.checker.replay import as_streamed
from deltaworks.engine.commit import Committer, Rows
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import Counts
from deltaworks.engine.event_range import EventRange, Part
from deltaworks.engine.flow import Flow
from deltaworks.engine.folders import folder_of
from deltaworks.engine.lake import OwnedTable, TooMuchError, bounded
from deltaworks.engine.linking import link_table
from deltaworks.engine.origin import told
from deltaworks.engine.poison import is_of_rows
from deltaworks.engine.publish import Staged, made_by, with_those_above
from deltaworks.engine.rewind import even, laid_out
from deltaworks.engine.schemas import spark_schema
from deltaworks.engine.writers.aggregate import AggregateWriter
from deltaworks.engine.writers.append import AppendWriter
from deltaworks.engine.writers.late_rows import number_anew
from deltaworks.engine.writers.patches import versions_in
from deltaworks.engine.writers.stateful import StatefulWriter
from deltaworks.engine.writers.view import ViewWriter
from deltaworks.errors import LakeError
from deltaworks.settings import Settings
from deltaworks.words.keeping import Append, Raw

RANGES_MAX = 100
"""Into so many ranges the ingest batches are put together: each is a condition on every row."""
Ranges = list[tuple[int, int]]
"""First and last ingest batch of each, in order."""


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """What came of one range: rows of the table.

    `read`: rows of bronze in the ingest batches of the range, or all rows of the inputs of a table that is computed.
    """

    since: datetime
    until: datetime
    read: int
    gone: int = 0
    come: int = 0
    unchanged: int = 0


@dataclass(frozen=True, kw_only=True)
class Backfilled:
    """What was staged, and how many rows of the table went and came.

    `batches`: how many ingest batches were taken again, and `read`: the rows of bronze in them; both 0 where the inputs
    stayed as they were. `ranges`: what came of each range. Rows that went or came outside of all of them, in a stretch
    that begins before one or under a key that has moved, are in `gone` and `come` alone. `above`: the tables above that
    followed.
    """

    staged: Staged
    gone: int
    come: int
    batches: int = 0
    read: int = 0
    ranges: tuple[Recomputed, ...] = ()
    above: tuple[str, ...] = ()


def refuse(table: str, catalog: Catalog) -> None:
    """Raise LakeError for a table without a range: there no row says when it happened."""
    declared = catalog[table]
    if declared.has_range:
        return
    if isinstance(declared.table.kept_as, Raw):
        raise LakeError(table, "is what came, and cannot be computed again", "Name a table above it")
    next_step = f'Run "deltaworks rebuild {table}"'
    if below := _below_with_range(catalog, table):
        ways = " or ".join(f'"deltaworks backfill {name} --from ... --to ..."' for name in below)
        next_step += f"; where only what it reads was wrong, {ways}, and {table} follows"
    raise LakeError(table, "has no range of event time that could be taken again", next_step)


def _below_with_range(catalog: Catalog, table: str) -> list[str]:
    """The tables with a range that this one is made from."""
    return [
        name for name, one in catalog.tables.items() if one.has_range and table in with_those_above(catalog, name)[1:]
    ]


def stage(
    table: str, *, ranges: Sequence[Part], catalog: Catalog, lake: Path, spark: SparkSession, anew: Settings
) -> Backfilled:
    """Compute these ranges of the table again in the empty lake of `anew`; the tables above it follow.

    Raises LakeError as `refuse` does, and where a table above is behind.
    """
    refuse(table, catalog)
    declared, wanted = catalog[table], EventRange.of(*ranges)
    patches = versions_in(lake, [table])  # before they are read
    chosen, others = even(table, catalog=catalog, lake=lake)
    bronze = declared.inputs[0] if declared.has_events else None
    held = {} if bronze is None else {bronze: Held(bronze, folder_of(bronze, lake))}
    for name, version in (others | chosen).items():
        for one in laid_out(lake, name, version):
            held[one.name] = one
    for one in held.values():
        link_table(one, anew.lake)
    epoch = 1 + max(one.entry.epoch for one in held.values())
    flow = Flow(
        app=declared.table.app, epoch=epoch, catalog=catalog, settings=anew, guard=lambda: None, suspends=False,
        knows_inputs=True,
    )  # fmt: skip
    flow.fence()
    as_streamed(flow, lake)
    writers = {writer.declared.name: writer for writer in flow.writers}
    code = {name: made_by(writers[name]) for name in chosen}
    staged = Staged(tables=tuple(chosen), base=others | chosen | patches, code=code, versions=others)
    scratch = anew.data / "exchanged"
    if bronze is not None:
        source = flow.inputs[bronze].table  # refused rows of these batches are judged in them, not again in a replay
        source.entry = replace(source.entry, position=replace(source.entry.position, replays=()))
        taken = _ranges(flow, declared, wanted)
        each = [_ranges(flow, declared, EventRange.of(one)) for one in ranges] if len(ranges) > 1 else [taken]
        reads = [_rows_in(source, those) for those in each]
        exchange = _take_again(flow, declared, taken, spark, scratch=scratch) if taken else None
        batches, read = sum(last - first + 1 for first, last in taken), _rows_in(source, taken)
    else:
        exchange, batches, read = _compute_again(flow, declared, wanted, spark, scratch=scratch), 0, 0
        reads = [sum(dataset_of(flow.inputs[name].table.delta).count_rows() for name in declared.inputs)] * len(ranges)
    before = {name: flow.inputs[name].table.data_version for name in chosen}
    if exchange is not None:
        for name in list(chosen)[1:]:
            _follow(flow, name, table, exchange, spark)
    staged.write(anew.data)
    gone, come = (0, 0) if exchange is None else (exchange.many_gone, exchange.many_come)
    return Backfilled(
        staged=staged, gone=gone, come=come, batches=batches, read=read,
        ranges=_counted(flow.inputs[table].table, str(declared.table.event_time), ranges, reads, exchange),
        above=tuple(name for name, version in before.items() if flow.inputs[name].table.data_version != version),
    )  # fmt: skip


def _counted(
    own: OwnedTable, event_time: str, ranges: Sequence[Part], reads: Sequence[int], exchange: "_Exchange | None"
) -> tuple[Recomputed, ...]:
    """What came of each range, by the event times of the rows that went, came and are there now."""
    there = dataset_of(own.delta)
    found = []
    for (since, until), read in zip(ranges, reads, strict=True):
        where = EventRange.of((since, until)).holds(event_time)
        gone, come = (0, 0) if exchange is None else (one.count_rows(filter=where) for one in exchange.files)
        unchanged = there.count_rows(filter=where) - come
        found.append(Recomputed(since=since, until=until, read=read, gone=gone, come=come, unchanged=unchanged))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class _Exchange:
    """Rows of the table that gave way, and those that came for them; what stayed as it was is in neither.

    `files`: the same rows, gone and come, where they lie.
    """

    gone: Rows
    come: Rows
    many_gone: int
    many_come: int
    files: tuple[ds.Dataset, ds.Dataset]


def _ranges(flow: Flow, declared: Declared, wanted: EventRange) -> Ranges:
    """The ingest batches that may have rows of the range.

    Those of the rows that are there; those that arrived in the range, or as much before it as a clock may be ahead, or
    so near that a copy may be among them; and those of refused rows that did not arrive before that: when they happened
    is not known.
    """
    own, event_time = flow.inputs[declared.name].table, declared.table.event_time
    assert isinstance(declared.table.kept_as, Append)
    assert event_time is not None, "refused before"
    within = declared.table.kept_as.within
    upto = own.entry.position.batches.get(declared.inputs[0], 0)
    early = declared.table.future_max + within
    near = wanted.widened(before=early, after=within)
    refused_since = ds.field("timestamp") >= pa.scalar(wanted.since - early, pa.timestamp("us", "UTC"))
    found = [
        _batches(own, wanted.holds(event_time)),
        _batches(flow.sides[declared.name]["quarantine"], refused_since),
        _batches(flow.inputs[declared.inputs[0]].table, near.holds("timestamp")),
    ]
    return joined({seq for some in found for seq in some if seq <= upto})


def _batches(table: OwnedTable, where: ds.Expression) -> list[int]:
    found: list[int] = pc.unique(table.read(["_seq"], where=where)["_seq"]).to_pylist()
    return found


def joined(batches: Iterable[int]) -> Ranges:
    """Few ranges that hold these ingest batches, and others only in the smallest gaps between them."""
    ranges = [(seq, seq) for seq in sorted(batches)]
    gaps = sorted((after - before for (_, before), (after, _) in pairwise(ranges)), reverse=True)
    widest = max(gaps[RANGES_MAX - 1], 1) if len(gaps) >= RANGES_MAX else 1
    found: Ranges = []
    for first, last in ranges:
        if found and first - found[-1][1] <= widest:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def _take_again(
    flow: Flow, declared: Declared, ranges: Ranges, spark: SparkSession, *, scratch: Path
) -> _Exchange | None:
    """Take these ingest batches again; None when everything comes out as it was."""
    name, bronze = declared.name, declared.inputs[0]
    own, side = flow.inputs[name].table, flow.sides[name]["quarantine"]
    committer = Committer(spark=spark, arrow_bytes_max=flow.settings.arrow_bytes_max, guard=lambda: None)
    place, upto, totals, version = own.entry.position, own.entry.ingest_seq, own.entry.totals, own.version
    here = " or ".join(f"(_seq between {first} and {last})" for first, last in ranges)
    rows = own.rows()
    committer.delete(own, here, own.entry.follow("redo"))
    taken = rows - own.rows()
    read = _rows_in(flow.inputs[bronze].table, ranges)
    refused = _rows_in(side, ranges)
    committer.delete(side, here, side.entry.follow("redo", counts=Counts(read=-refused, taken=-refused)))
    writer = next(one for one in flow.writers if one.declared.name == name)
    assert isinstance(writer, AppendWriter)
    writer.between = True
    for first, last in ranges:
        writer.progress.position = replace(place, batches={**place.batches, bronze: first - 1})
        writer.progress.ingest_seq, writer.until = first - 1, last
        while writer.behind():
            flow.take_slice(name, spark)
        met = writer.progress.position
        place = replace(place, strays=met.strays, strays_most=met.strays_most)
    writer.settle(committer)
    came = own.entry.totals - totals
    # what leaves no row behind, and warnings, is left as it was counted first
    others = read - taken - refused - came.not_mine - came.expired
    # filter and age may let in less than then: these are divided as they may have been, and no total is below 0
    expired = came.expired + max(0, others - totals.duplicate - totals.filtered)
    others -= expired - came.expired
    filtered = min(max(came.filtered, others - totals.duplicate), others, totals.filtered)
    was = Counts(
        read=read, taken=taken, refused=refused, duplicate=others - filtered, not_mine=came.not_mine, filtered=filtered,
        expired=expired, warned=came.warned, ahead=came.ahead,
    )  # fmt: skip
    entry = own.entry.follow("redo", counts=Counts() - was, position=place, ingest_seq=upto)
    committer.mark(own, entry)
    flow.open_anew(name)
    seq = ds.field("_seq")
    brought = reduce(operator.or_, ((seq >= first) & (seq <= last) for first, last in ranges))
    return _exchanged(own, version, brought, spark, scratch, bytes_max=flow.settings.arrow_bytes_max)


def _compute_again(
    flow: Flow, declared: Declared, wanted: EventRange, spark: SparkSession, *, scratch: Path
) -> _Exchange | None:
    """Compute the range of a table again from its inputs as they are; None when everything comes out as it was.

    Raises LakeError where its transform cannot compute a row that it could before.
    """
    flow.refuse_outdated(declared)
    own, event_time = flow.inputs[declared.name].table, declared.table.event_time
    version = own.version
    committer = Committer(spark=spark, arrow_bytes_max=flow.settings.arrow_bytes_max, guard=lambda: None)
    writer = next(one for one in flow.writers if one.declared.name == declared.name)
    assert isinstance(writer, AggregateWriter | StatefulWriter | ViewWriter)
    try:
        writer.compute_again(spark, committer, wanted)
    except TooMuchError:
        raise LakeError(own.name, "has too many rows in the range", "Order shorter ranges, or rebuild it") from None
    except Exception as error:
        if not is_of_rows(error):
            raise
        finding = f"its transform cannot compute some row: {told(error, declared.transform)}"
        raise LakeError(own.name, finding, f'Mend it, or run "deltaworks rebuild {own.name}"') from None
    flow.open_anew(declared.name)
    # groups of other times stay; stretches may begin before the range, and the time of a key may be another now
    stays = not isinstance(writer, StatefulWriter) and event_time in declared.keys
    among = wanted.holds(str(event_time)) if stays else None
    return _exchanged(own, version, among, spark, scratch, bytes_max=flow.settings.arrow_bytes_max)


def _exchanged(
    own: OwnedTable, version: int, among: ds.Expression | None, spark: SparkSession, scratch: Path, *, bytes_max: int
) -> _Exchange | None:
    """Rows (of those that `among` holds) that were there at a version and those that are now; as files in a new folder.

    By DuckDB: Spark took more of the processor for it than for all the rest of a backfill.
    """
    names = [name for name in own.schema.names if name not in ("_seq", "_arrived")]
    schema = pa.schema([own.schema.field(name) for name in names])
    scratch.mkdir()
    files = {name: str(scratch / f"{name}.parquet") for name in ("gone", "come")}
    tables = {"before": DeltaTable(str(own.path), version=version), "after": own.delta}
    try:
        with duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": str(scratch / "spilled")}) as connection:
            for name, table in tables.items():
                rows = dataset_of(table).scanner(columns=names, filter=among).to_reader()
                connection.register("rows", rows)
                connection.execute(f'create table "{name}" as from rows')
            for name, one, other in (("gone", "before", "after"), ("come", "after", "before")):
                connection.sql(f'from "{one}" except all from "{other}"').write_parquet(files[name])
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        shorter = "" if among is None else ", or order shorter ranges"
        next_step = f"Make room on the disk of {scratch.parent}{shorter}"
        raise LakeError(own.name, "its rows of before and after find no room beside each other", next_step) from error
    found = {name: pq.read_metadata(file).num_rows for name, file in files.items()}
    if not any(found.values()):
        return None
    if (small := _read(files.values(), schema, bytes_max)) is not None:
        gone, come = small
    else:
        gone, come = (spark.read.schema(spark_schema(schema)).parquet(file) for file in files.values())
    there = ds.dataset(files["gone"], format="parquet"), ds.dataset(files["come"], format="parquet")
    return _Exchange(gone=gone, come=come, many_gone=found["gone"], many_come=found["come"], files=there)


def _read(files: Iterable[str], schema: pa.Schema, bytes_max: int) -> list[pa.Table] | None:
    """The rows of each file; None where they are more than so many bytes together."""
    found: list[pa.Table] = []
    for file in files:
        with pq.ParquetFile(file) as opened:
            left = bytes_max - sum(rows.nbytes for rows in found)
            try:
                rows = pa.Table.from_batches(bounded(opened.iter_batches(), left), opened.schema_arrow)
            except TooMuchError:
                return None
        found.append(rows.cast(schema))
    return found


def _follow(flow: Flow, name: str, changed: str, exchange: _Exchange, spark: SparkSession) -> None:
    """A table above takes what changed: a view by its inputs' feeds, the others what they made of those rows."""
    committer = Committer(spark=spark, arrow_bytes_max=flow.settings.arrow_bytes_max, guard=lambda: None)
    writer = next(one for one in flow.writers if one.declared.name == name)
    match writer:
        case AggregateWriter() | StatefulWriter() if not writer.table.entry.position.versions.get(changed):
            return  # it will take what there is
        case AggregateWriter():
            writer.exchanged(spark, committer, gone=exchange.gone, come=exchange.come)
        case StatefulWriter():
            source = flow.inputs[changed]
            writer.exchanged(spark, committer, source, gone=exchange.gone, come=exchange.come)
        case _:
            while writer.behind():
                flow.take_slice(name, spark)
    writer.settle(committer)
    if (late := flow.sides.get(name, {}).get("late")) is not None:
        number_anew(committer, late)


def _rows_in(table: OwnedTable, ranges: Ranges) -> int:
    data = dataset_of(table.delta)
    return sum(
        data.count_rows(filter=(ds.field("_seq") >= first) & (ds.field("_seq") <= last)) for first, last in ranges
    )
