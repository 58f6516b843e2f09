"""States of the tiny project's members, as JSON: their topic, and what a table of them says by definition."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from deltaworks.settings import Settings
from tests.arrow_flows import ArrowOwner
from tests.flows import START, Crash, Log, Owner, Record
from tests.tiny_project import Project

T = TypeVar("T")
MEMBERS = "silver.members"
Arrival = tuple[int, float, int, int]
Held = tuple[int, str, float, float | None]
"""Member, city, and from and until which second after the start."""


def member(key: int, city: str | None = None, *, partition: int = 0, **more: Any) -> Record:
    """Give the state of a member, or with no city the record that takes the member away."""
    state = None if city is None else json.dumps({"member_id": key, "city": city, "dues": 0, **more}).encode()
    return Record(topic="members", key=json.dumps({"member_id": key}).encode(), value=state, partition=partition)


def take(owner: ArrowOwner, log: Log, *records: Record) -> None:
    """One batch."""
    log.send(records)
    owner.take(log.batch())


def through_deaths(
    folder: Path, batches: list[list[Record]], owned: Callable[[Path], ArrowOwner]
) -> Iterator[tuple[ArrowOwner, ArrowOwner, str]]:
    """For each commit an owner that died before it and took all at last, one that lived, and which commit it was."""
    calm, log = owned(folder / "calm"), Log()
    opened = calm.commits
    for batch in batches:
        take(calm, log, *batch)
    for crash_at in range(opened, calm.commits):
        owner, log = owned(folder / str(crash_at)), Log()
        owner.crash_at = crash_at
        for batch in batches:
            log.send(batch)
            try:
                owner.take(log.batch())
            except Crash:
                owner.crash_at = -1
                owner.start()
                owner.catch_up(log)
        assert owner.crash_at == -1
        yield owner, calm, f"died before commit {crash_at}"


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


def in_parts(chance: Random, records: list[T], *, cuts: int = 5) -> list[list[T]]:
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


def dated(folder: Path, *, by: str = "changed_at", kind: str = "timestamp") -> Settings:
    """Give a tiny project whose members have a history, by a column of this type."""
    settings = ordered(folder, by=by, kind=kind)
    project = Project.at(settings.project)
    project.edit("tables/silver/members/table.py", "kept_as=latest(", "kept_as=history(")
    project.edit("tables/silver/members/table.py", "json, latest", "history, json")
    return settings


def changed(key: int, city: str, second: float, *, arrives: float, partition: int = 0) -> Record:
    """Give a state that says it holds from this second on, and when it arrives."""
    at = (START + timedelta(seconds=second)).isoformat()
    return dataclasses.replace(
        member(key, city, partition=partition, changed_at=at), at=START + timedelta(seconds=arrives)
    )


def changes(chance: Random, count: int) -> list[Record]:
    """Give states of few keys and few times in any order and either partition, with copies, and now and then an end.

    Clocks are wrong in both directions: a state may come before its time, and after that of a later end.
    """
    made: list[Record] = []
    for number in range(count):
        key, partition = chance.randrange(3), chance.randrange(2)
        arrives = chance.randrange(1, 40)  # a record of the start itself would say no time, and the log give it one
        roll = chance.random()
        if roll < 0.2 and made:
            made.append(dataclasses.replace(chance.choice(made), at=START + timedelta(seconds=arrives)))
        elif roll < 0.4:
            made.append(moved(key, None, partition, second=arrives))
        else:
            made.append(changed(key, f"C{number}", chance.randrange(40), arrives=arrives, partition=partition))
    return made


def held_by_definition(batches: list[list[Record]]) -> set[Held]:
    """Which member lived where, from when on and until when: told by walking through the times of what came."""
    states: dict[tuple[int, float], tuple[Arrival, str]] = {}
    ends: dict[int, list[tuple[float, Arrival]]] = {}
    records = [record for batch in batches for record in batch]
    for record, (key, arrival, state) in zip(records, _arrivals(batches), strict=True):
        if state is None:
            ends.setdefault(key, []).append((_second(record.at), arrival))
        else:
            at = _second(datetime.fromisoformat(state["changed_at"]))
            states[key, at] = max((arrival, state["city"]), states.get((key, at), (arrival, "")))
    held: set[Held] = set()
    for key in {key for key, _ in states}:
        mine, over = [(at, *found) for (of, at), found in states.items() if of == key], ends.get(key, [])
        never = {one for one in mine if any(end < one[0] and arrived > one[1] for end, arrived in over)}
        held |= {(key, city, at, at) for at, _, city in never}
        there: tuple[str, float] | None = None
        for at, _, city in sorted([one for one in mine if one not in never] + [(*end, "") for end in over]):
            held |= {(key, *there, at)} if there else set()
            there = (city, at) if city else None
        held |= {(key, *there, None)} if there else set()
    return held


def held(owner: Owner) -> set[Held]:
    """Tell which member lived where, from when on and until when, as the history has it."""
    table = next(one for one in owner.flow.tables() if one.name == MEMBERS)
    table.reopen()
    rows = table.read(["member_id", "city", "valid_from", "valid_to", "is_current"]).to_pylist()
    assert all(row["is_current"] == (row["valid_to"] is None) for row in rows)
    found = {
        (row["member_id"], row["city"], _second(row["valid_from"]), row["valid_to"] and _second(row["valid_to"]))
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def _second(at: datetime) -> float:
    return (at - START).total_seconds()


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
