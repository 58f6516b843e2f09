"""Somebody follows a shop and unfollows it at once: whatever arrives first, the database's order counts."""

import json
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import pytest

from deltaworks.settings import ROOT, Settings
from tests.arrow_flows import ArrowOwner
from tests.flows import Log, Record

PLACES = {"follow": 1, "unfollow": 2, "again": 3}
"""Where each change stands in the database's log, and the second in which it was committed."""
ARRIVALS = [*permutations(("follow", "unfollow")), *permutations(PLACES)]


def changes(what: str, member: str) -> Record:
    """What Debezium sends of it."""
    key, lsn = {"member": member, "shop": "books"}, PLACES[what]
    source = {"schema": "public", "table": "follows", "lsn": lsn, "snapshot": "false"}
    row, op = ({**key, "since": f"2026-11-20T10:00:{lsn:02d}Z"}, "c") if what != "unfollow" else (None, "d")
    envelope = {"before": None, "after": row, "source": source, "op": op}
    return Record(topic="shop.changes", key=json.dumps(key).encode(), value=json.dumps(envelope).encode())


@pytest.mark.parametrize("how", ["together", "one by one", "with restarts"])
def test_follow_and_unfollow_come_out_right_however_they_arrive(tmp_path: Path, how: str) -> None:
    """Who has unfollowed does not follow, unless she followed again after that; each order of arrival is a member."""
    owner = ArrowOwner(Settings.load(ROOT / "tests/follows", environment={}, data=tmp_path), "feed")
    members = {" ".join(arrival): [changes(what, " ".join(arrival)) for what in arrival] for arrival in ARRIVALS}
    log = Log()

    for number in range(len(PLACES)):
        if how == "with restarts":
            owner.start()
        log.send(record for records in members.values() for record in records[number : number + 1])
        if how != "together":
            owner.take(log.batch())
    owner.take(log.batch())

    since = datetime(2026, 11, 20, 10, 0, PLACES["again"], tzinfo=UTC)
    expected = {member: since for member in members if "again" in member}
    assert {row["member"]: row["since"] for row in owner.rows("silver.follows")} == expected
    assert len(expected) == 6
    assert owner.verdicts() == {"ok"}
