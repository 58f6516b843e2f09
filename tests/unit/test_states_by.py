"""`latest(..., by=...)` without a JVM: of a key's states the highest counts, in whatever order they come."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from deltaworks import catalog
from deltaworks.engine.parse import parser
from deltaworks.errors import LakeError
from deltaworks.words import Column
from deltaworks.words import json as reads_json
from tests.arrow_flows import ArrowOwner
from tests.bronze_rows import bronze
from tests.chance import seeded
from tests.flows import Log
from tests.states import (
    MEMBERS,
    cities,
    counted,
    highest_by_definition,
    in_parts,
    member,
    ordered,
    revised,
    revisions,
    take,
    through_deaths,
)


def owned(folder: Path, **how: str) -> ArrowOwner:
    """Open the tiny project with members by revision, or by another column, over a lake of its own."""
    return ArrowOwner(ordered(folder, **how), "tiny")


def test_an_older_revision_changes_nothing_whenever_it_comes(tmp_path: Path) -> None:
    """In one batch, in the next, after a restart; what comes twice changes nothing; the highest of each key stays."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, revised(1, "Bath", 2), revised(1, "Cork", 1), revised(2, "Bath", 5), revised(3, "Bath", -7))
    take(owner, log, revised(2, "Cork", 4), revised(2, "Bath", 4))
    owner.start()
    take(owner, log, revised(1, "Linz", 3), revised(1, "Bath", 2), revised(3, "Cork", -8))
    take(owner, log, revised(1, "Bath", 2))

    assert cities(owner) == {1: "Linz", 2: "Bath", 3: "Bath"}
    assert counted(owner) == (4, 6, 0)


def test_of_equal_ones_the_last_to_arrive_counts(tmp_path: Path) -> None:
    """A correction that was not counted up; in one batch, and in a later one."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, revised(1, "Bath", 2), revised(1, "Cork", 2), revised(2, "Bath", 2))
    take(owner, log, revised(2, "Cork", 2))

    assert cities(owner) == {1: "Cork", 2: "Cork"}
    assert counted(owner) == (3, 1, 0)


def test_a_state_that_cannot_be_placed_is_refused(tmp_path: Path) -> None:
    """Null, left out, of another type: it is set aside with the reason, and the row stays."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, revised(1, "Bath", 2), revised(1, "Cork", None), member(1, "Cork"), revised(1, "Cork", "3"))

    reasons = sorted(row["reason"] for row in owner.rows(f"{MEMBERS}__quarantine"))
    assert reasons == ["revision: missing", "revision: not an integer", "revision: null"]
    assert cities(owner) == {1: "Bath"}
    assert counted(owner) == (1, 0, 3)


def test_a_deletion_takes_away_what_has_arrived(tmp_path: Path) -> None:
    """It has no revision. What was there goes, however high; what arrives after it counts, however low."""
    owner, log = owned(tmp_path), Log()

    take(owner, log, revised(1, "Bath", 9), revised(2, "Bath", 9), member(2), revised(2, "Cork", 1))
    assert cities(owner) == {1: "Bath", 2: "Cork"}
    take(owner, log, member(1), member(3))
    owner.start()
    assert cities(owner) == {2: "Cork"}
    take(owner, log, revised(1, "Graz", 3), revised(3, "Graz", 1))
    take(owner, log, revised(1, "Linz", 2), member(2), revised(2, "Linz", 0), revised(2, "Wien", -1))

    assert cities(owner) == {1: "Graz", 2: "Linz", 3: "Graz"}
    assert counted(owner) == (7, 5, 0)


@pytest.mark.parametrize("run", range(6))
def test_order_of_arrival_and_slices_make_no_difference(tmp_path: Path, run: int) -> None:
    """As by definition, batch by batch with a restart, and with all of bronze at once; places included."""
    del run
    chance = seeded()
    batches = in_parts(chance, revisions(chance, 50))
    owner, log = owned(tmp_path), Log()
    for number, batch in enumerate(batches):
        take(owner, log, *batch)
        if number == 2:
            owner.start()
    streamed = places(owner)
    assert cities(owner) == highest_by_definition(batches)
    assert sum(counted(owner)) == 50

    for folder in (owner.settings.lake / "silver").glob("members*"):
        shutil.rmtree(folder)
    owner.start()
    owner.take(Log().batch())

    assert places(owner) == streamed
    assert sum(counted(owner)) == 50


@pytest.mark.parametrize("run", range(4))
def test_without_deletions_any_order_and_any_cut_give_the_same_table(tmp_path: Path, run: int) -> None:
    """Revisions of a key differ; some come twice. Shuffled, cut, restarted."""
    del run
    chance = seeded()
    states = [revised(key, f"C{revision}", revision) for key in range(4) for revision in range(8)]
    found = []
    for number in range(3):
        owner, log = owned(tmp_path / str(number)), Log()
        records = chance.sample(states, len(states)) + chance.sample(states, 8)
        for part in in_parts(chance, records, cuts=number * 3 + 1):
            take(owner, log, *part)
            owner.start()
        found.append(owner.rows(MEMBERS))
        assert sum(counted(owner)) == 40

    assert found[0] == found[1] == found[2]
    assert [row["revision"] for row in found[0]] == [7] * 4


def places(owner: ArrowOwner) -> list[tuple[Any, ...]]:
    """Give the members and where their states stand."""
    rows = owner.flow.inputs[MEMBERS].table.read(["member_id", "_source"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_a_death_before_any_commit_changes_nothing(tmp_path: Path) -> None:
    """Deletions are remembered before the table is committed: what a crash leaves there comes again."""
    chance = seeded()
    batches = in_parts(chance, revisions(chance, 20), cuts=2)
    died = 0
    for owner, calm, which in through_deaths(tmp_path, batches, owned):
        assert places(owner) == places(calm), which
        assert counted(owner) == counted(calm), which
        died += 1
    assert died >= 6


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [-(2**31), -10, -9, -1, 0, 9, 10, 2**31 - 1]),
        ("bigint", [-(2**63), -10, -9, 0, 9, 10, 2**63 - 1]),
        ("decimal(4,2)", ["-99.99", "-1.5", "-0.05", "0", "0.05", "0.5", "1.25", "99.99"]),
        ("decimal(38,0)", ["-" + "9" * 38, -1, 0, 1, "9" * 38]),
        ("date", ["0001-01-01", "1969-12-31", "1970-01-01", "2026-11-27", "9999-12-31"]),
        (
            "timestamp",
            [
                "0001-01-01T00:00:00Z",
                "1969-12-31T23:59:59.999999Z",
                "2026-11-27T10:00:00+01:00",
                "2026-11-27T10:00:00Z",
            ],
        ),
    ],
)
def test_places_sort_as_the_values_do(kind: str, values: list[object]) -> None:
    """As texts, which is how both ways to commit compare them; negative ones and all that the type holds."""
    columns = (Column("id", "bigint", null=False, doc="Key."), Column("at", kind, null=False, doc="Order."))
    states = parser(reads_json("bronze.states", topic="states"), columns, ("id",), by="at")

    rows = states.parse(bronze([json.dumps({"id": 1, "at": value}) for value in values], topic="states"))

    assert rows["_reason"].to_pylist() == [None] * len(values)
    found = rows["_source"].to_pylist()
    assert found == sorted(found)
    assert len(set(found)) == len(values)
    assert all(place.startswith("by at/") for place in found)


def test_the_time_of_arrival_can_be_what_decides(tmp_path: Path) -> None:
    """Where the broker gives it, it is the same however Kafka is read."""
    settings = ordered(tmp_path, by="arrived_at", kind="timestamp")
    table = settings.project / "tables/silver/members/table.py"
    table.write_text(table.read_text().replace('"timestamp", null=False,', '"timestamp", null=False, wire="arrival",'))
    owner, log = ArrowOwner(settings, "tiny"), Log()

    for city, second in (("Bath", 5), ("Cork", 2), ("Linz", 9), ("Graz", 3)):
        take(owner, log, revised(1, city, 0, second=second))

    assert cities(owner) == {1: "Linz"}


def test_another_order_is_not_gone_on_with(tmp_path: Path) -> None:
    """The rows that are there were placed by arrival: what comes now cannot be compared with them."""
    settings = ordered(tmp_path)
    table = settings.project / "tables/silver/members/table.py"
    by_revision = table.read_text()
    table.write_text(by_revision.replace(', by="revision"', ""))
    owner, log = ArrowOwner(settings, "tiny"), Log()
    take(owner, log, revised(1, "Bath", 2))
    table.write_text(by_revision)
    owner.catalog = catalog.load(settings.project)
    owner.start()

    with pytest.raises(LakeError, match="placed by its arrival, declared is by revision.*rebuild silver.members"):
        take(owner, log, revised(1, "Cork", 1))
