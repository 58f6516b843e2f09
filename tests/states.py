"""States of the tiny project's members, as JSON: their topic, and what a table of them says by definition."""

import dataclasses
import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from deltaworks.settings import Settings
from tests.arrow_flows import ArrowOwner
from tests.flows import START, Log, Record
from tests.tiny_project import Project

MEMBERS = "silver.members"
Arrival = tuple[int, float, int, int]


def member(key: int, city: str | None = None, *, partition: int = 0, **more: Any) -> Record:
    """Give the state of a member, or with no city the record that takes the member away."""
    state = None if city is None else json.dumps({"member_id": key, "city": city, "dues": 0, **more}).encode()
    return Record(topic="members", key=json.dumps({"member_id": key}).encode(), value=state, partition=partition)


def take(owner: ArrowOwner, log: Log, *records: Record) -> None:
    """One batch."""
    log.send(records)
    owner.take(log.batch())


def cities(owner: ArrowOwner) -> dict[int, str]:
    """Where each member lives."""
    return {row["member_id"]: row["city"] for row in owner.rows(MEMBERS)}


def counted(owner: ArrowOwner) -> tuple[int, int, int]:
    """How many records were taken, were superseded, were refused; the books balance."""
    sheet = next(one for one in owner.ledger().sheets() if one.table == MEMBERS)
    assert sheet.verdict == "ok"
    return sheet.taken, sheet.superseded, sheet.refused


def moved(key: int, city: str | None, partition: int, *, second: float) -> Record:
    """Give a state, or an end, that a partition has at a second of the broker's clock."""
    return dataclasses.replace(member(key, city, partition=partition), at=START + timedelta(seconds=second))


def a_topic(chance: Random, count: int, *, clocks: bool) -> list[Record]:
    """Give states and ends of few keys, now and then in the other partition; `clocks`: every time is a producer's."""
    made, home = [], dict.fromkeys(range(4), 0)
    for number in range(count):
        key = chance.randrange(4)
        if chance.random() < 0.2:
            home[key] = 1 - home[key]
        city = None if chance.random() < 0.2 else f"C{number}"
        second = chance.uniform(-9, 9) if clocks else number
        made.append(moved(key, city, home[key], second=second))
    return made


def in_parts(chance: Random, records: list[Record], *, cuts: int = 5) -> list[list[Record]]:
    """Cut records into parts."""
    places = sorted(chance.sample(range(1, len(records)), cuts))
    return [records[low:high] for low, high in pairwise([0, *places, len(records)])]


def by_definition(batches: list[list[Record]]) -> dict[int, str]:
    """Where each member lives: its last state by arrival, unless that is an end."""
    last: dict[int, tuple[Arrival, dict[str, Any] | None]] = {}
    for key, arrival, state in _arrivals(batches):
        if key not in last or arrival > last[key][0]:
            last[key] = arrival, state
    return {key: state["city"] for key, (_, state) in last.items() if state is not None}


def _arrivals(batches: list[list[Record]]) -> Iterator[tuple[int, Arrival, dict[str, Any] | None]]:
    """Key, arrival and state of each record: batch, a clock that never falls in a partition, partition, offset."""
    clocks: dict[tuple[int, ...], float] = {}
    for number, (seq, record) in enumerate((seq, one) for seq, batch in enumerate(batches) for one in batch):
        key = json.loads(record.key or b"")["member_id"]
        at, group = record.at.timestamp(), (key, seq, record.partition)
        clocks[group] = max(at, clocks.get(group, at))
        state = None if record.value is None else json.loads(record.value)
        yield key, (seq, clocks[group], record.partition, number), state


def ordered(folder: Path, *, by: str = "revision", kind: str = "bigint") -> Settings:
    """Give a tiny project whose members are placed by a column of this type."""
    project = Project(folder / "project")
    table = "tables/silver/members/table.py"
    project.edit(table, 'keys=("member_id",)', f'keys=("member_id",), by="{by}"')
    column = f'Column("{by}", "{kind}", null=False, doc="Counted up with each change."),'
    project.edit(table, "    columns=(\n", f"    columns=(\n        {column}\n")
    project.delete("tables/silver/members/cases")
    return Settings.load(project.folder, environment={}, data=folder / "data")


def revised(key: int, city: str, revision: object, *, partition: int = 0, second: float = 0) -> Record:
    """Give a state of this revision."""
    made = member(key, city, partition=partition, revision=revision)
    return dataclasses.replace(made, at=START + timedelta(seconds=second))


def revisions(chance: Random, count: int) -> list[Record]:
    """Give states of few keys in any order and either partition, with copies, and now and then an end."""
    made: list[Record] = []
    for number in range(count):
        key, partition, second = chance.randrange(3), chance.randrange(2), chance.uniform(-9, 9)
        roll = chance.random()
        if roll < 0.15 and made:
            made.append(dataclasses.replace(chance.choice(made), at=START + timedelta(seconds=second)))
        elif roll < 0.3:
            made.append(moved(key, None, partition, second=second))
        else:
            made.append(revised(key, f"C{number}", chance.randrange(-5, 5), partition=partition, second=second))
    return made


def highest_by_definition(batches: list[list[Record]]) -> dict[int, str]:
    """Where each member lives: of what arrived after the last end the highest revision, of equal ones the last."""
    ends: dict[int, Arrival] = {}
    states: list[tuple[int, int, Arrival, str]] = []
    for key, arrival, state in _arrivals(batches):
        if state is None:
            ends[key] = max(arrival, ends.get(key, arrival))
        else:
            states.append((key, state["revision"], arrival, state["city"]))
    alive = [one for one in states if one[0] not in ends or one[2] > ends[one[0]]]
    return {key: max(one[1:] for one in alive if one[0] == key)[2] for key in {one[0] for one in alive}}
