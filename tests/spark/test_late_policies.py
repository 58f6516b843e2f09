"""Ten thousand events, one in twenty late, ingested once: however they are read from bronze, the tables are the same.

What must come out is computed here in plain Python, event by event.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyspark.sql import SparkSession

from deltaworks.engine.maintenance import compact
from deltaworks.settings import Settings
from tests.chance import seeded
from tests.flows import BY_ARROW, KAFKA, Owner
from tests.tiny_project import Project

EVENTS, BATCHES, LATE = 10_000, 25, 0.05
AFTER = timedelta(hours=1)
HORIZON = timedelta(minutes=10)
MICRO = timedelta(microseconds=1)
EDGES = (
    datetime(2023, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2024, 2, 28, 23, 59, 59, tzinfo=UTC),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    datetime(2024, 3, 31, 1, tzinfo=UTC),  # Berlin's clocks go from 2:00 to 3:00
    datetime(2024, 10, 27, 1, tzinfo=UTC),  # and from 3:00 back to 2:00
    datetime(2024, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
)
"""Ingest batches gather around these moments."""
BERLIN = ZoneInfo("Europe/Berlin")
POLICIES = ("correct", "drop", "side_output")


@dataclass(frozen=True)
class Event:
    """An event as it arrives: its id may be that of an earlier one, of which it is a copy."""

    name: str
    at: datetime
    arrived: datetime
    batch: int
    offset: int


def ingest(chance: Random) -> list[Event]:
    """All events in order of arrival, by ingest batch."""
    events: list[Event] = []
    mark: datetime | None = None
    per_batch = EVENTS // BATCHES
    for batch in range(BATCHES):
        edge = batch * len(EDGES) // BATCHES
        base = EDGES[edge] + timedelta(minutes=17) * (batch - -(-edge * BATCHES // len(EDGES)))
        times: list[datetime] = []
        for number in range(per_batch):
            arrived = base + timedelta(seconds=number)
            name, at = (
                f"{batch}.{number}",
                base + chance.randrange(900) * timedelta(seconds=1) - 450 * timedelta(seconds=1),
            )
            if mark is not None and chance.random() < LATE:
                at = mark - chance.choice((AFTER, AFTER + MICRO, 2 * AFTER, timedelta(days=366)))
            elif chance.random() < 0.02 and events:
                copied = chance.choice(events[-per_batch:])
                name, at = copied.name, copied.at
            times.append(min(at, arrived))
            events.append(Event(name, at, arrived, batch, len(events)))
        mark = max([*times, mark] if mark else times)
    return events


def accepted(events: Iterable[Event]) -> Iterator[Event]:
    """The first of the copies that arrive within the horizon of an accepted one."""
    seen: dict[str, list[datetime]] = {}
    for event in events:
        if all(abs(event.arrived - time) > HORIZON for time in seen.get(event.name, ())):
            seen.setdefault(event.name, []).append(event.arrived)
            yield event


def judged(events: Iterable[Event]) -> list[tuple[Event, timedelta]]:
    """Each accepted event with how late it is: against how far those of the batches before its own had come."""
    found, before, mark, batch = [], None, None, 0
    for event in accepted(events):
        if event.batch != batch:
            before, batch = mark, event.batch
        found.append((event, max(timedelta(0), before - event.at) if before else timedelta(0)))
        come = min(event.at, event.arrived)  # half of them have a clock that is ahead
        mark = max(mark, come) if mark else come
    return found


def project(folder: Path) -> Path:
    """The tiny project with a table of days for each policy."""
    copy = Project(folder)
    copy.edit("tables/silver/notes/table.py", ' wire="millis",', "")
    table, transform = (
        (copy.folder / f"tables/gold/notes_per_day/{name}.py").read_text() for name in ("table", "transform")
    )
    copy.delete("tables/gold/notes_per_day")
    copy.delete("expectations/gold/notes_per_day.yml")
    for policy in POLICIES:
        own = table.replace("late=correct(", f"late={policy}(").replace(
            "aggregate, correct, greatest", f"aggregate, {policy}, greatest"
        )
        copy.write(f"tables/gold/days_{policy}/table.py", own)
        copy.write(f"tables/gold/days_{policy}/transform.py", transform)
        copy.write(f"expectations/gold/days_{policy}.yml", "waived: made by a test\n")
    return copy.folder


def wire(event: Event, chance: Random) -> dict[str, object]:
    """The event on its topic: its time is told by a clock of any zone."""
    zone = chance.choice((UTC, BERLIN, timezone(timedelta(hours=-8)), timezone(timedelta(hours=5.5))))
    row = {"note_id": event.name, "written_at": event.at.astimezone(zone).isoformat(), "words": event.offset}
    coordinates = {"topic": "notes", "partition": 0, "offset": event.offset, "timestamp": event.arrived}
    return {**coordinates, "key": None, "value": json.dumps(row).encode(), "headers": None}


def put_into_bronze(owner: Owner, events: Sequence[Event], chance: Random) -> None:
    """Commit the ingest batches, with no table above them taking its turn."""
    for batch in range(BATCHES):
        rows = [wire(event, chance) for event in events if event.batch == batch]
        owner.flow.bronze[0].take_arrow(pa.Table.from_pylist(rows, schema=KAFKA), owner.flow._committer(None))


def read(owner: Owner, chance: Random, *, restarts: float) -> None:
    """Take all that bronze has, with restarts between the turns."""
    while owner.flow.behind():
        owner.flow.turn(owner.spark)
        if chance.random() < restarts:
            owner.flow.settle()
            owner.start()
    owner.flow.settle()


def lake(owner: Owner) -> dict[str, Any]:
    """Everything above bronze: rows with how late they are, days, what was set aside."""
    tables = {name: source.table for name, source in owner.flow.inputs.items()}
    late = owner.flow.sides["gold.days_side_output"]["late"]
    columns = ["note_id", "written_at", "words", "_late_by"]
    return {
        "notes": sorted(tuple(row.values()) for row in tables["silver.notes"].read(columns).to_pylist()),
        "late": sorted(tuple(row.values()) for row in late.read(columns).to_pylist()),
        **{p: sorted(tuple(r.values()) for r in tables[f"gold.days_{p}"].read().to_pylist()) for p in POLICIES},
    }


def expected(events: Sequence[Event]) -> dict[str, Any]:
    """The same, by hand."""
    all_notes = judged(events)
    notes = [(event.name, event.at, event.offset, late // MICRO) for event, late in all_notes]
    late = [note for note in notes if note[3] > AFTER // MICRO]
    in_time = [note for note in notes if note[3] <= AFTER // MICRO]
    used = {"correct": notes, "drop": in_time, "side_output": in_time}
    return {"notes": sorted(notes), "late": sorted(late), **{policy: days(used[policy]) for policy in POLICIES}}


def days(notes: Iterable[tuple[str, datetime, int, int]]) -> list[tuple[Any, ...]]:
    """Notes, words, the shortest and the last of each day."""
    by_day: dict[Any, list[tuple[int, datetime]]] = {}
    for _, at, words, _ in notes:
        by_day.setdefault(at.date(), []).append((words, at))
    return sorted(
        (day, len(rows), sum(words for words, _ in rows), min(words for words, _ in rows), max(at for _, at in rows))
        for day, rows in by_day.items()
    )


def test_each_policy_gives_the_same_rows_however_the_ingest_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Five readings, in slices of all sizes, with restarts, one by Spark: `_late_by`, days and late rows as by hand."""
    chance = seeded()
    events = ingest(chance)
    settings = Settings.load(project(tmp_path / "project"), environment={}, data=tmp_path / "ingest")
    first = Owner(spark, settings, "tiny")
    put_into_bronze(first, events, chance)
    wanted = expected(events)
    lateness = Counter((late > 0) + (late > AFTER // MICRO) for *_, late in wanted["notes"])
    assert any(late == AFTER // MICRO for *_, late in wanted["notes"])
    assert lateness[2] > EVENTS * LATE / 2
    assert len(wanted["notes"]) < len(events)
    assert len({event.name for event in events}) < len(wanted["notes"])  # copies beyond the horizon

    ways = [("whole", "auto", 2**26, 0.0), ("spark", "spark", 2**26, 0.0)]
    ways += [(f"slices{n}", "auto", round(2 ** chance.uniform(19, 21)), 0.4) for n in range(3)]
    for name, path, bytes_max, restarts in ways:
        copy = settings.changed(data=tmp_path / name, arrow_bytes_max=bytes_max)
        shutil.copytree(settings.lake / "bronze", copy.lake / "bronze")
        owner = Owner(spark, copy, "tiny", path=path)
        if path == "spark":  # it takes a file at a time: from one file all batches at once
            compact(owner.flow.bronze[0].table, command=1, committer=BY_ARROW)
        read(owner, chance, restarts=restarts)

        found = lake(owner)
        for part, rows in wanted.items():
            assert found[part] == rows, (name, part)
        sheets = {sheet.table: sheet for sheet in owner.ledger().sheets()}
        assert {sheet.verdict for sheet in sheets.values()} == {"ok"}, name
        assert sheets["gold.days_drop"].late == sheets["gold.days_side_output"].late == len(wanted["late"]), name
