"""Stateful tables: whatever the order, the cuts, restarts and the commit path, they are what their rows make."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TypeVar

import deltalake
import pytest
from pyspark.sql import SparkSession

from deltaworks.engine.lake import TooMuchError
from deltaworks.engine.writers.stateful import StatefulWriter
from tests.chance import seeded
from tests.flows import START, Crash, Log, Owner
from tests.spells import AFTER, GAP, Row, project, record, records

DAY = timedelta(days=1)


def stored(owner: Owner, name: str) -> list[Row]:
    """Give the rows that an input has, with how late they were."""
    return have(owner, name)


def in_time(rows: Iterable[Row], policy: str) -> list[Row]:
    """Give the rows that a table with this policy uses."""
    return [row for row in rows if policy == "correct" or row["_late_by"] <= AFTER / timedelta(microseconds=1)]


def spells(owner: Owner, policy: str) -> list[Row]:
    """Give what the spells must be."""
    found: list[Row] = []
    notes = sorted(in_time(stored(owner, "silver.notes"), policy), key=lambda n: (str(n["member_id"]), n["written_at"]))
    passed = mark(owner, "silver.notes") - AFTER
    for note in notes:
        at = note["written_at"]
        if not found or found[-1]["member_id"] != note["member_id"] or at > found[-1]["over"]:
            found.append({"member_id": note["member_id"], "begun": at, "notes": 0, "words": 0})
        last = found[-1]
        last |= {"over": at + GAP, "notes": last["notes"] + 1, "words": last["words"] + note["words"]}
        last["complete"] = last["over"] < passed
    return found


def answered(owner: Owner) -> list[Row]:
    """Give what the answered notes must be."""
    notes, replies = (in_time(stored(owner, name), "drop") for name in ("silver.notes", "silver.replies"))
    passed = min(mark(owner, name) for name in ("silver.notes", "silver.replies")) - AFTER
    found = []
    for note in notes:
        until = note["written_at"] + GAP
        times = [
            r["replied_at"] for r in replies
            if r["member_id"] == note["member_id"] is not None and note["written_at"] <= r["replied_at"] <= until
        ]  # fmt: skip
        kept = {name: note[name] for name in ("member_id", "written_at", "note_id")}
        found.append(
            kept | {"replies": len(times), "first_reply": min(times, default=None), "waits_until": until,
                    "complete": until < passed}
        )  # fmt: skip
    return found


def mark(owner: Owner, name: str) -> datetime:
    """Give how far event time has come in an input."""
    micros = owner.flow.inputs[name].table.entry.position.mark
    return datetime.min.replace(tzinfo=UTC) + GAP if micros is None else datetime.fromtimestamp(micros / 10**6, UTC)


def have(owner: Owner, name: str) -> list[Row]:
    """Give a table's rows, read beside the owner: to have its handle read anew would let its memory go."""
    table = owner.flow.inputs[name].table
    rows: list[Row] = deltalake.DeltaTable(str(table.path)).to_pyarrow_table().cast(table.schema).to_pylist()
    return rows


def same(one: Iterable[Row], other: Iterable[Row]) -> bool:
    """Whether rows are the same in any order."""
    first, second = (sorted((sorted(row.items()) for row in rows), key=str) for rows in (one, other))
    return first == second


T = TypeVar("T")


def now_and_then_too_much(method: Callable[..., T]) -> Callable[..., T]:
    """Stand in for rows that are too many every third time."""
    times = count(1)

    def either(*given: object) -> T:
        if not next(times) % 3:
            raise TooMuchError
        return method(*given)

    return either


@pytest.mark.parametrize(
    ("policy", "path", "batches"),
    [
        ("correct", "auto", 14),
        ("drop", "auto", 8),
        ("side_output", "auto", 8),
        ("side_output", "places", 8),
        ("correct", "spark", 2),
    ],
)
def test_rows_are_what_their_events_make_together(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, path: str, batches: int
) -> None:
    """After every batch, restart and death: each spell and each answered note as brute force finds them.

    `places`: the stored rows of the stretches are too many for Arrow now and then, where they are is not.
    """
    chance, log = seeded(), Log()
    if path == "places":
        monkeypatch.setattr(StatefulWriter, "_near", now_and_then_too_much(StatefulWriter._near))
        monkeypatch.delattr(StatefulWriter, "_wide")  # what finds stretches by Spark
    owner = Owner(spark, project(tmp_path, policy), "tiny", path="spark" if path == "spark" else "auto")

    for part in records(batches, 30 if path == "spark" else 8):
        log.send(part)
        rows = log.batch()
        what = chance.choice(("go on", "go on", "restart", "die"))
        what = {"spark": "restart", "places": "go on"}.get(path, what)
        if what == "die":
            owner.crash_at = owner.commits + chance.randrange(6)
        try:
            owner.take(rows)
        except Crash:
            owner.crash_at = -1
            owner.start()
            owner.catch_up(log)
        owner.crash_at = -1
        if what == "restart":
            owner.start()

        assert same(have(owner, "gold.spells"), spells(owner, policy))
        assert same(have(owner, "gold.answered"), answered(owner))
    owner.turn()  # after a restart: a place that was only remembered is taken again
    sheets = {sheet.table: sheet for sheet in owner.ledger().sheets()}
    assert {sheet.verdict for sheet in sheets.values()} == {"ok"}
    missed = len(stored(owner, "silver.notes")) - len(in_time(stored(owner, "silver.notes"), policy))
    assert sheets["gold.spells"].late == missed
    if policy == "side_output":
        assert owner.flow.sides["gold.spells"]["late"].rows() == missed > 0


def test_an_input_without_rows_holds_no_row_back_and_closes_none(spark: SparkSession, tmp_path: Path) -> None:
    """Rows are there at once; they are complete when the quiet input has come past them too."""
    used = ("silver.notes", "silver.replies", "gold.answered")
    owner, log = Owner(spark, project(tmp_path, "correct"), "tiny", only=used), Log()
    notes = [record("notes", number, 1, START - ago) for number, ago in ((1, 2 * DAY), (2, 0 * DAY))]
    complete = []

    for sent in (notes, [record("replies", 3, 1, START - 3 * DAY)], [record("replies", 4, 1, START - DAY)]):
        log.send(sent)
        owner.take(log.batch())
        complete.append({row["note_id"]: row["complete"] for row in have(owner, "gold.answered")})

    nothing_came, old_rows, past_the_first = complete
    assert nothing_came == old_rows == {"n1": False, "n2": False}
    assert past_the_first == {"n1": True, "n2": False}
    assert owner.verdicts() == {"ok"}


def test_a_table_that_is_new_over_old_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A stateful table begins with what silver has, in slices; the same rows as one that was there all the time."""
    log, settings = Log(), project(tmp_path, "correct")
    owner = Owner(spark, settings, "tiny")
    for part in records(5, 10):
        log.send(part)
        owner.take(log.batch())
    expected = have(owner, "gold.spells")
    assert len(expected) > 1

    behind = settings.changed(arrow_bytes_max=60_000)
    (settings.lake / "gold").rename(tmp_path / "moved away")
    again = Owner(spark, behind, "tiny", epoch=1)
    again.catch_up(log)

    assert same(have(again, "gold.spells"), expected)
