"""A table computed again from its inputs, with those above it: staged in a lake of its own, published by the owner.

Staging is done by a process of its own, while the stream goes on. What it makes is a table as of a place among its
inputs. The owner puts that table and that place into the lake in one commit, and from there takes what has come since,
as after a restart: so nothing that arrived meanwhile is missing, and nothing is there twice.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from deltaworks.catalog import Catalog
from deltaworks.engine.checker.picture import Held
from deltaworks.engine.checker.replay import as_streamed, link, use_late_again
from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Counts, Entry
from deltaworks.engine.flow import Flow, Steps
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.writers.writer import code_of, suite_of
from deltaworks.errors import CommandError, LakeError
from deltaworks.settings import Settings
from deltaworks.words.keeping import Raw

ABOUT = "staged.json"


@dataclass(frozen=True, kw_only=True)
class Staged:
    """What was staged: the tables, inputs first, and the code and suite that made each.

    `versions`: what was taken of inputs that are not among them.
    """

    tables: tuple[str, ...]
    made_by: dict[str, tuple[str, str | None]]
    versions: dict[str, int]

    @classmethod
    def read(cls, folder: Path) -> "Staged":
        """What lies in a folder; raises LakeError if it is not whole."""
        try:
            found = json.loads((folder / ABOUT).read_text())
        except FileNotFoundError:
            raise LakeError(str(folder), "nothing was staged there", 'Run "deltaworks rebuild TABLE" again') from None
        made_by = {name: (code, suite) for name, (code, suite) in found["made_by"].items()}
        return cls(tables=tuple(found["tables"]), made_by=made_by, versions=found["versions"])


def stage(table: str, *, catalog: Catalog, lake: Path, spark: SparkSession, anew: Settings) -> Staged:
    """Compute the table and those above it again, into the empty lake of `anew`."""
    if isinstance(catalog[table].table.kept_as, Raw):
        raise LakeError(table, "is what came, and cannot be computed again", "Name a table above it")
    names = with_those_above(catalog, table)
    inputs = dict.fromkeys(source for name in names for source in catalog[name].inputs if source not in names)
    held = {name: Held(name, lake / name.replace(".", "/", 1)) for name in inputs}
    bronze = [name for name in inputs if isinstance(catalog[name].table.kept_as, Raw)]
    for name in bronze:
        link(held[name], anew.lake)
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
    staged = Staged(
        tables=names,
        made_by={name: (code_of(catalog[name]), suite_of(catalog[name])) for name in names},
        versions={name: held[name].version for name in inputs if name not in bronze},
    )
    (anew.data / ABOUT).write_text(json.dumps(asdict(staged)))
    return staged


def with_those_above(catalog: Catalog, table: str) -> tuple[str, ...]:
    """The table and all tables that are made from it, inputs first."""
    found = {table}
    for declared in catalog.tables.values():
        if found.intersection(declared.inputs):
            found.add(declared.name)
    return tuple(name for name in catalog.tables if name in found)


def _seed(flow: Flow, held: Held, spark: SparkSession, committer: Committer) -> None:
    """An input that is not computed again, as one batch of all the rows that it has."""
    own = flow.inputs[held.name].table
    rows = spark.read.format("delta").option("versionAsOf", held.version).load(str(held.path))
    entry = own.entry.follow("batch", position=held.entry.position, ingest_seq=held.entry.ingest_seq)
    committer.commit(own, rows.select(*own.schema.names), entry)


def publish(flow: Flow, folder: Path, *, command: int) -> Steps:
    """Put what was staged in a folder into the place of these tables' rows; the result says how many tables those are.

    Given again after a crash it goes on with the tables that have not got theirs yet; until then they take their turns
    as they are. Raises CommandError if the app runs with other code than made it.
    """
    staged = Staged.read(folder)
    writers = {writer.declared.name: writer for writer in flow.writers}
    for name in staged.tables:
        if name not in writers:
            raise CommandError(f"command {command}", f"app {flow.app} has no table {name}", "Stage it again")
        if staged.made_by[name][0] != writers[name].progress.code:
            finding = f"{name} was staged by other code than the app runs with"
            raise CommandError(f"command {command}", finding, f"Restart app {flow.app}, then order it again")
    versions = dict(staged.versions)
    for number, name in enumerate(staged.tables, 1):
        own = flow.inputs[name].table
        done = next((one.version for one in own.commits_backwards() if _published(one.entry, command)), None)
        if done is None:
            _publish(flow, name, folder / "lake", versions, command)
            flow.open_anew(name)
            done = own.version
        versions[name] = done
        yield {"done": number, "total": len(staged.tables)}
    return {"tables": len(staged.tables)}


def _publish(flow: Flow, name: str, lake: Path, versions: Mapping[str, int], command: int) -> None:
    """One table: those beside it first, its own entry closes the group."""
    own, made = flow.inputs[name].table, Held(name, lake / name.replace(".", "/", 1))
    taken = {source: versions[source] for source in made.entry.position.versions}
    position = replace(made.entry.position, versions=taken)
    committer = Committer(spark=None, arrow_bytes_max=flow.settings.arrow_bytes_max, guard=flow.guard)

    def entry(of: OwnedTable, found: Held | None) -> Entry:
        totals = Counts() if found is None else found.entry.totals
        return of.entry.follow(
            "rebuild", command=command, counts=totals - of.entry.totals, position=position,
            ingest_seq=made.entry.ingest_seq, code=made.entry.code, suite=made.entry.suite, claimed=None,
        )  # fmt: skip

    for suffix, side in flow.sides.get(name, {}).items():
        path = made.path.with_name(f"{made.path.name}__{suffix}")
        found = Held(side.name, path) if DeltaTable.is_deltatable(str(path)) else None
        committer.replace(side, _rows_of(found, side, max(taken.values(), default=0)), entry(side, found))
    committer.replace(own, _rows_of(made, own, 0), entry(own, made))


def _published(entry: Entry | None, command: int) -> bool:
    return entry is not None and entry.kind == "rebuild" and entry.command == command


def _rows_of(found: Held | None, like: OwnedTable, version: int) -> Iterator[pa.RecordBatch]:
    """The rows of a staged table; those that tell their input's version came with the one that counts now."""
    if found is None:
        return iter(())
    # by Arrow alone: delta-rs cannot read for itself while it writes
    files = ds.dataset(
        [str(found.path / name) for name in found.files()],
        schema=like.stored, format="parquet", partitioning="hive", partition_base_dir=str(found.path),
    )  # fmt: skip

    def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
        at = batch.schema.get_field_index("_version")
        numbers = pa.array([version] * batch.num_rows, pa.int64())
        return batch if at < 0 else batch.set_column(at, "_version", numbers)

    return map(numbered, files.to_batches(columns=like.stored.names))
