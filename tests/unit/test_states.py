"""`latest` over JSON states, without a JVM: what a record without a value takes away, and what it leaves."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from deltaworks.engine.outlets.feed import Feed
from deltaworks.engine.outlets.publishing import Publishing
from deltaworks.settings import Settings
from deltaworks.words import changelog
from tests.arrow_flows import ArrowOwner
from tests.flows import Crash, Log, Record
from tests.tiny_project import TINY

MEMBERS = "silver.members"


def member(key: int, city: str | None = None, *, partition: int = 0, **more: Any) -> Record:
    """Give the state of a member, or with no city the record that takes the member away."""
    state = None if city is None else json.dumps({"member_id": key, "city": city, "dues": 0, **more}).encode()
    return Record(topic="members", key=json.dumps({"member_id": key}).encode(), value=state, partition=partition)


def owned(folder: Path) -> ArrowOwner:
    """Open the tiny project over a lake of its own."""
    return ArrowOwner(Settings.load(TINY, environment={}, data=folder), "tiny")


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


def test_a_record_without_a_value_takes_its_row_away(tmp_path: Path) -> None:
    """In the batch of its state, in a later one, after a restart; whoever comes again is there again."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, member(1, "Bath"), member(2, "Cork"), member(3, "Graz"), member(1))
    assert cities(owner) == {2: "Cork", 3: "Graz"}
    owner.start()
    take(owner, log, member(2), member(3), member(9))
    assert cities(owner) == {}
    take(owner, log, member(3, "Linz"))

    assert cities(owner) == {3: "Linz"}
    assert counted(owner) == (7, 1, 0)


def test_a_deletion_that_names_no_row_is_set_aside(tmp_path: Path) -> None:
    """The row stays until somebody says what was meant; the record counts as refused."""
    owner, log, wrong = owned(tmp_path), Log(), member(1)
    wrong.key = b'{"name": "Ada"}'

    take(owner, log, member(1, "Bath"), wrong)

    assert cities(owner) == {1: "Bath"}
    assert owner.rows(f"{MEMBERS}__quarantine")[0]["reason"] == "key: undeclared field"
    assert counted(owner) == (1, 0, 1)


def test_a_death_before_any_commit_loses_no_deletion(tmp_path: Path) -> None:
    """What is remembered of it beside the table is undone with the table's own batch, and comes again."""
    batches = [[member(1, "Bath"), member(2, "Cork")], [member(1), member(2, "Graz")], [member(2), member(1, "Linz")]]
    calm, log = owned(tmp_path / "calm"), Log()
    opened = calm.commits
    for batch in batches:
        take(calm, log, *batch)
    assert calm.commits - opened == 8  # three batches: bronze and table, and two deletions beside it

    for crash_at in range(opened, calm.commits):
        owner, log = owned(tmp_path / str(crash_at)), Log()
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
        assert cities(owner) == {1: "Linz"}, f"died before commit {crash_at}"
        assert counted(owner) == (6, 0, 0), f"died before commit {crash_at}"


def told(owner: ArrowOwner) -> list[Record]:
    """Give what a changelog of the members says, all of it, as the topic's writer encodes it."""
    declared = owner.catalog[MEMBERS]
    declared = dataclasses.replace(declared, table=dataclasses.replace(declared.table, publishes=changelog("members")))
    feed = Feed(declared, owner.settings.lake / "silver" / "members", bytes_max=2**20)
    newest = feed.newest()
    assert newest is not None
    written = Publishing(declared, feed, bootstrap="")
    found = []
    for version in range(newest):
        changes = feed.changes(version, version + 1)
        assert changes is not None
        for key, value, _ in map(written._message, changes):
            found.append(Record(topic="members", key=key, value=value))
    return found


@pytest.mark.parametrize("at_once", [False, True])
def test_our_own_changelog_is_read_as_the_table_that_it_is_of(tmp_path: Path, at_once: bool) -> None:
    """Another team's app that reads what `publishes=changelog(...)` writes has the same rows, and lets them go."""
    source, log = owned(tmp_path / "source"), Log()
    take(source, log, member(1, "Bath", name="Ada"), member(2, "Cork", joined="2025-01-01"), member(3, "Graz"))
    take(source, log, member(1, "Linz", dues="12.50"), member(2))
    take(source, log, member(3), member(2, "Wien"))
    messages = told(source)
    assert sum(message.value is None for message in messages) == 2

    reader, log = owned(tmp_path / "reader"), Log()
    for batch in [messages] if at_once else [[message] for message in messages]:
        take(reader, log, *batch)

    assert reader.rows(MEMBERS) == source.rows(MEMBERS)
    assert sorted(cities(reader)) == [1, 2]
    assert counted(reader)[2] == 0
