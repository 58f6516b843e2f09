"""I5: what the streams left is what comes out when bronze is taken anew, in other slices, by the same code.

A lake of its own gets bronze's files (as links where the disk can) and empty tables above; the app's writers fill them
as they do after a restart, only from the beginning. Nothing of the lake that is checked is written.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from deltaworks.catalog import Declared
from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.checker.picture import Picture
from deltaworks.engine.checker.progress import progress
from deltaworks.engine.checker.rows import difference
from deltaworks.engine.datasets import dataset_of
from deltaworks.engine.entry import Unfit
from deltaworks.engine.flow import Computed, Flow
from deltaworks.engine.linking import link_table
from deltaworks.engine.marks import in_order
from deltaworks.engine.through import Lineage
from deltaworks.engine.writers.append import AppendWriter
from deltaworks.engine.writers.late_rows import late_rows_used
from deltaworks.engine.writers.over_bronze import OverBronze
from deltaworks.engine.writers.patches import standing_in, used_by
from deltaworks.settings import Settings
from deltaworks.words.keeping import Raw

NOT_COMPARED = frozenset({"_seq", "_version", "_claimed"})
"""Of equal changes, and of late rows, a replay may name another bringer."""
_DECIDED = frozenset({"code", "suite", "state", "command"})
"""Of refused rows: a replay judges them itself, and knows of no order about them."""
_STEP = "Keep both lakes and report it; a table whose code or rules have changed differs too: then rebuild it"


def replay(picture: Picture, spark: SparkSession, anew: Settings) -> list[Finding]:
    """Recompute every table over bronze into the empty lake of `anew` and compare; the picture must be at rest."""
    behind = [Finding("I5", one.place, f"cannot be told: {one.finding}", one.next_step) for one in progress(picture)]
    if behind:
        return behind
    for declared, held in picture:
        if isinstance(declared.table.kept_as, Raw):
            link_table(held, anew.lake)
    for app in picture.catalog.apps:
        _run(app, picture, spark, anew)
    with Picture(picture.catalog, anew.lake) as other:
        return [finding for declared, _ in picture for finding in _compare(picture, other, declared)]


def _run(app: str, picture: Picture, spark: SparkSession, anew: Settings) -> None:
    """The app's tables above bronze, until nothing is left to take."""
    epoch = 1 + max(held.entry.epoch for held in picture.tables.values())
    flow = Flow(app=app, epoch=epoch, catalog=picture.catalog, settings=anew, guard=lambda: None, suspends=False)
    flow.fence()
    as_streamed(flow, picture.lake)
    left_out_again(flow, {held.name: held.entry.position.unfit for _, held in picture})
    for writer in flow.writers:
        name = writer.declared.name
        aside = picture.beside(name, "quarantine")
        if isinstance(writer, OverBronze) and aside is not None:
            own = picture.tables[name]
            events = own.delta if isinstance(writer, AppendWriter) else None
            upto = own.entry.position.batches.get(writer.bronze, 0)
            writer.patched = used_by(picture.lake, name, aside.delta, upto=upto, events=events)
    while flow.behind():
        flow.turn(spark)
    for declared, held in picture:
        if declared.table.app == app:
            use_late_again(flow, declared.name, spark, picture.lake, uses=(held.entry.position.applied or (0, 0))[0])
            flow.expire_before(declared.name, held.entry.position.kept_from, command=0)
    while flow.behind():  # views over those
        flow.turn(spark)
    flow.settle()


def as_streamed(flow: Flow, lake: Path) -> None:
    """What was decided once in this lake stays decided.

    How far event time had come, bad rows that were let in, and patches of refused rows: all that stand.
    """
    lineage = Lineage(lake)
    for writer in flow.writers:
        if isinstance(writer, OverBronze):
            flow.accept_bad(writer.declared.name, command=0)
            writer.patched = standing_in(lake, writer.declared.name)
        if isinstance(writer, AppendWriter) and (lineage.path(writer.declared.name) / "_delta_log").exists():
            writer.recorded = in_order((one.version, one.entry) for one in lineage.commits(writer.declared.name))


def left_out_again(flow: Flow, unfit: Mapping[str, tuple[Unfit, ...]]) -> None:
    """What tables of this lake have left out, as their transforms could not compute it, is left out."""
    for writer in flow.writers:
        if isinstance(writer, Computed):
            writer.fitting.decided = unfit.get(writer.declared.name, ())


def use_late_again(flow: Flow, name: str, spark: SparkSession, lake: Path, *, uses: int) -> None:
    """Rows that came too late for a table and were used after all in this lake, so many times, are used."""
    writer = next((one for one in flow.writers if one.declared.name == name), None)
    used = late_rows_used(lake, name, uses=uses)
    # a table that sets no late rows aside any more uses them all, or none
    if used and getattr(writer, "used", None) is not None:
        for _ in flow.apply_late(name, command=0, spark=spark, only=used):
            pass


def _compare(picture: Picture, other: Picture, declared: Declared) -> Iterator[Finding]:
    if isinstance(declared.table.kept_as, Raw):
        return
    for suffix in ("", "__quarantine", "__late"):
        name = f"{declared.name}{suffix}"
        stored, replayed = picture.tables.get(name), other.tables.get(name)
        if stored is None or replayed is None:
            if stored is not None:
                yield Finding("I5", name, "was not made by a replay", _STEP)
            continue
        anew = f"{name} anew"
        picture.connection.register(anew, dataset_of(replayed.delta))
        left_out = NOT_COMPARED | (_DECIDED if suffix == "__quarantine" else frozenset())
        names = [column for column in stored.schema.names if column not in left_out]
        if told := difference(picture, anew, name, names):
            yield Finding("I5", name, f"against a replay of {replayed.rows()} rows: {told}", _STEP)
