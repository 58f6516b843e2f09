"""A table computed again from its inputs, with those above it, in a lake of its own; `publish.py` brings it back.

A process of its own does so while the stream goes on, by the app's own writers.
"""

from dataclasses import replace
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from deltaworks.catalog import Catalog
from deltaworks.engine.checker.picture import Held
from deltaworks.engine.checker.replay import as_streamed, use_late_again
from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Counts, Entry
from deltaworks.engine.flow import Computed, Flow
from deltaworks.engine.folders import folder_of
from deltaworks.engine.linking import link_table
from deltaworks.engine.publish import Staged, made_by, with_those_above
from deltaworks.engine.same_input import common
from deltaworks.engine.writers.late_rows import number_anew
from deltaworks.engine.writers.over_bronze import OverBronze
from deltaworks.engine.writers.patches import versions_in
from deltaworks.errors import LakeError
from deltaworks.settings import Settings
from deltaworks.words.keeping import Raw


def refuse(table: str, catalog: Catalog) -> None:
    """Raise LakeError for what cannot be computed again."""
    if isinstance(catalog[table].table.kept_as, Raw):
        raise LakeError(table, "is what came, and cannot be computed again", "Name a table above it")


def stage(table: str, *, catalog: Catalog, lake: Path, spark: SparkSession, anew: Settings) -> Staged:
    """Compute the table and those above it again into the empty lake of `anew`, up to where they stand.

    Raises LakeError for bronze.
    """
    refuse(table, catalog)
    names = with_those_above(catalog, table)
    before = {name: Held(name, path) for name in names if DeltaTable.is_deltatable(str(path := folder_of(name, lake)))}
    entries = {name: Entry(kind="create", app="", epoch=0) for name in names}
    entries |= {name: one.entry for name, one in before.items()}
    patches = versions_in(lake, names)  # before they are read
    inputs = dict.fromkeys(source for name in names for source in catalog[name].inputs if source not in names)
    held = {name: Held(name, folder_of(name, lake)) for name in inputs}
    bronze = [name for name in inputs if isinstance(catalog[name].table.kept_as, Raw)]
    for name in bronze:
        link_table(held[name], anew.lake)
    epoch = 1 + max(one.entry.epoch for one in held.values())
    app = catalog[table].table.app
    flow = Flow(app=app, epoch=epoch, catalog=catalog, settings=anew, guard=lambda: None, suspends=False)
    flow.fence()
    committer = Committer(spark=spark, arrow_bytes_max=anew.arrow_bytes_max, guard=lambda: None)
    for name in (name for name in inputs if name not in bronze):
        _seed(flow, held[name], spark, committer)
    as_streamed(flow, lake)
    writers = {writer.declared.name: writer for writer in flow.writers}
    for name in names:
        writer, position = writers[name], entries[name].position
        if isinstance(writer, Computed):
            writer.fitting.known = position.unfit
        taken = 0
        if isinstance(writer, OverBronze):  # beyond, lateness is not decided yet: the stream takes that
            taken = position.batches.get(writer.bronze, 0)
            writer.until = common(entries[name], held[writer.bronze])
        while writer.behind():
            flow.take_slice(name, spark)
        use_late_again(flow, name, spark, lake, uses=(position.applied or (0, 0))[0])
        writer.settle(committer)
        same = not isinstance(writer, OverBronze) or writer.until == taken  # else what raised it is not there any more
        own = writer.table
        # what raised it may be refused now; one that was revised is as somebody has decided
        here = replace(own.entry.position, mark=position.mark, closed=position.closed)
        if same and position.mark is not None and here != own.entry.position:
            committer.mark(own, own.entry.follow("redo", position=here))
        flow.expire_before(name, position.kept_from, command=0)
        if (late := flow.sides.get(name, {}).get("late")) is not None:
            number_anew(committer, late)
    outside = {name: one.version for name, one in held.items() if name not in bronze}
    staged = Staged(
        tables=names,
        base={name: one.version for name, one in before.items()} | outside | patches,
        code={name: made_by(writers[name]) for name in names},
        versions=outside,
        whole=True,
    )
    staged.write(anew.data)
    return staged


def _seed(flow: Flow, held: Held, spark: SparkSession, committer: Committer) -> None:
    """An input that is not computed again, as one batch of all the rows that it has."""
    own = flow.inputs[held.name].table
    rows = spark.read.format("delta").option("versionAsOf", held.version).load(str(held.path))
    gone = held.entry.totals.expired  # who reads it counts them, as it has done
    entry = own.entry.follow(
        "batch", counts=Counts(read=gone, expired=gone), position=held.entry.position, ingest_seq=held.entry.ingest_seq
    )
    committer.commit(own, rows.select(*own.schema.names), entry)
