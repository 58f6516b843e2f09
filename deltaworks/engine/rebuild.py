"""A table computed again from its inputs, with those above it, in a lake of its own; `publish.py` brings it back.

A process of its own does so while the stream goes on, by the app's own writers.
"""

from pathlib import Path

from pyspark.sql import SparkSession

from deltaworks.catalog import Catalog
from deltaworks.engine.checker.picture import Held
from deltaworks.engine.checker.replay import as_streamed, use_late_again
from deltaworks.engine.commit import Committer
from deltaworks.engine.flow import Flow
from deltaworks.engine.lake import HOOKS_OFF, OwnedTable
from deltaworks.engine.linking import link_table
from deltaworks.engine.publish import Staged, with_those_above
from deltaworks.engine.writers.writer import code_of
from deltaworks.errors import LakeError
from deltaworks.settings import Settings
from deltaworks.words.keeping import Raw


def stage(table: str, *, catalog: Catalog, lake: Path, spark: SparkSession, anew: Settings) -> Staged:
    """Compute the table and those above it again, into the empty lake of `anew`; raises LakeError for bronze."""
    if isinstance(catalog[table].table.kept_as, Raw):
        raise LakeError(table, "is what came, and cannot be computed again", "Name a table above it")
    names = with_those_above(catalog, table)
    inputs = dict.fromkeys(source for name in names for source in catalog[name].inputs if source not in names)
    held = {name: Held(name, lake / name.replace(".", "/", 1)) for name in inputs}
    bronze = [name for name in inputs if isinstance(catalog[name].table.kept_as, Raw)]
    for name in bronze:
        link_table(held[name], anew.lake)
    epoch = 1 + max(one.entry.epoch for one in held.values())
    app = catalog[table].table.app
    flow = Flow(app=app, epoch=epoch, catalog=catalog, settings=anew, guard=lambda: None, detaches=False)
    flow.fence()
    committer = Committer(spark=spark, arrow_bytes_max=anew.arrow_bytes_max, guard=lambda: None)
    for name in (name for name in inputs if name not in bronze):
        _seed(flow, held[name], spark, committer)
    as_streamed(flow, lake)
    writers = {writer.declared.name: writer for writer in flow.writers}
    for name in names:
        while writers[name].behind():
            flow.take_slice(name, spark)
        own = Held(name, lake / name.replace(".", "/", 1))
        use_late_again(flow, name, spark, lake, uses=(own.entry.position.applied or (0, 0))[0])
        writers[name].settle(committer)
        if (late := flow.sides.get(name, {}).get("late")) is not None:
            _number_anew(late)
    staged = Staged(
        tables=names,
        code={name: code_of(catalog[name]) for name in names},
        versions={name: held[name].version for name in inputs if name not in bronze},
    )
    staged.write(anew.data)
    return staged


def _seed(flow: Flow, held: Held, spark: SparkSession, committer: Committer) -> None:
    """An input that is not computed again, as one batch of all the rows that it has."""
    own = flow.inputs[held.name].table
    rows = spark.read.format("delta").option("versionAsOf", held.version).load(str(held.path))
    entry = own.entry.follow("batch", position=held.entry.position, ingest_seq=held.entry.ingest_seq)
    committer.commit(own, rows.select(*own.schema.names), entry)


def _number_anew(late: OwnedTable) -> None:
    """The versions that brought late rows here mean nothing in the lake: these rows come with their table."""
    late.delta.update(
        {"_version": "0"},
        commit_properties=late.properties(late.entry.follow("redo")),
        post_commithook_properties=HOOKS_OFF,
    )
