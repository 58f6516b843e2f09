"""`history` on the Arrow path, which needs no JVM: every order, every cut, death before every commit."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltaworks import catalog
from deltaworks.catalog.describing import described
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.source import equals
from deltaworks.settings import ROOT, Settings
from tests.chance import Share, seeded
from tests.customers import TABLE, a_source, alone, in_batches, moved, shuffled, states
from tests.flows import Owner
from tests.handed import Hand
from tests.intruder import Intruder


def owned(settings: Settings) -> Owner:
    """Open the shop without Spark: of its tables only the history takes rows."""
    return alone(Hand(), settings)  # type: ignore[arg-type]  # see Hand


@pytest.fixture
def shop(tmp_path: Path) -> Settings:
    """Give the shop's settings with an empty lake of this test's own."""
    return Settings.load(ROOT, environment={}, data=tmp_path)


def test_states_follow_each_other(shop: Settings) -> None:
    """A late change lands at its place; a number given away, a deletion and a return leave their gaps; copies nothing.

    The deletion of 2 comes before its rows; the one of 1 and the row of 11 have one sequence.
    """
    owner = owned(shop)

    in_batches(
        owner,
        [
            [moved("r", 1, 1, second=0), moved("u", 1, 3, second=3), moved("d", 2, 6, second=6)],
            [moved("u", 1, 2, second=2), moved("c", 2, 5, second=5), moved("c", 2, 8, second=7)],
            [moved("u", 1, 3, second=3), moved("d", 1, 9, second=1), moved("c", 11, 9, second=1)],
            [moved("d", 2, 6, second=6)],
        ],
    )

    assert states(owner) == [
        (1, "n1", 0, 2, False),
        (1, "n2", 2, 3, False),
        (1, "n3", 3, 3, False),
        (2, "n5", 5, 6, False),
        (2, "n8", 7, None, True),
        (11, "n9", 1, None, True),
    ]
    (sheet,) = (one for one in owner.ledger().sheets() if one.table == TABLE)
    assert (sheet.verdict, sheet.taken, sheet.superseded, sheet.rows) == ("ok", 8, 2, 6)


def test_a_truncation_ends_what_was_there(shop: Settings) -> None:
    """Also what comes later and is older; what is newer it does not touch. Twice it is one."""
    owner, cut = owned(shop), moved("t", 0, 5, second=5)

    in_batches(
        owner,
        [
            [moved("c", 1, 1, second=1), moved("c", 2, 7, second=7)],
            [cut],
            [moved("c", 3, 3, second=3), moved("c", 1, 9, second=9)],
            [cut],
        ],
    )

    assert states(owner) == [
        (1, "n1", 1, 5, False),
        (1, "n9", 9, None, True),
        (2, "n7", 7, None, True),
        (3, "n3", 3, 5, False),
    ]
    assert owner.verdicts() == {"ok"}


def test_an_expectation_on_the_interval_judges_no_row_that_comes() -> None:
    """It has none yet. The columns that came are judged."""
    expectations: Any = described(catalog.load(ROOT), TABLE)["expectations"]

    judged = {one["expectation"]: one["judged"] for one in expectations}

    name = "expect_column_pair_values_a_to_be_greater_than_b(valid_to, valid_from)"
    assert judged[name] == "each night; not in the stream: a row has no interval when it comes"
    assert judged["expect_column_values_to_match_regex(country)"] == "each row, each night"


def test_a_row_read_by_two_snapshots_is_there_since_the_first(shop: Settings) -> None:
    """Nothing was written between them, so they have one sequence; their times differ. Whichever comes first."""
    first, second = moved("r", 1, 1, second=1), moved("r", 1, 1, second=9)

    for number, parts in enumerate(([[first], [second]], [[first, second]])):
        owner = owned(shop.changed(data=shop.data / str(number)))
        in_batches(owner, parts)
        assert states(owner) == [(1, "n1", 1, None, True)]
        assert owner.verdicts() == {"ok"}


def test_a_change_without_its_time_is_refused(shop: Settings) -> None:
    """An interval would begin nowhere. A table of present states does not ask for it."""
    owner, record = owned(shop), moved("c", 1, 1, second=0)
    record.value = (record.value or b"").replace(b'"ts_us"', b'"x"').replace(b'"ts_ms"', b'"y"')

    in_batches(owner, [[record, moved("c", 2, 2, second=0)]])

    assert [row[0] for row in states(owner)] == [2]
    side = owner.flow.sides[TABLE]["quarantine"]
    assert side.read(["reason"]).to_pylist() == [{"reason": "source: no usable time"}]
    assert owner.verdicts() == {"ok"}


@pytest.mark.parametrize("run", range(5))
def test_order_and_cuts_make_no_difference(shop: Settings, run: int) -> None:
    """In order and at once, or shuffled over batches with copies and a restart."""
    chance = seeded()
    records = a_source(chance, 40 + 20 * run)
    calm, wild = (owned(shop.changed(data=shop.data / name)) for name in ("calm", "wild"))
    in_batches(calm, [records])
    parts = shuffled(chance, records, cuts=2 + run)

    in_batches(wild, parts[:1])
    wild.start()
    in_batches(wild, parts)  # from the log's beginning: what bronze has is left out

    assert any(row[4] for row in states(calm))
    assert any(not row[4] for row in states(calm))
    assert states(wild) == states(calm)
    assert calm.verdicts() == wild.verdicts() == {"ok"}


def test_death_before_any_commit_changes_nothing(shop: Settings, share: Share) -> None:
    """Ends are remembered before the table is committed: what a crash leaves there comes again, once."""
    chance = seeded()
    parts = shuffled(chance, a_source(chance, 40), cuts=4)
    calm = owned(shop.changed(data=shop.data / "calm"))
    opened = calm.commits
    in_batches(calm, parts)
    assert calm.commits - opened >= 8  # four batches: bronze and table, and ends now and then

    for crash_at in share(range(opened, calm.commits)):
        owner = owned(shop.changed(data=shop.data / f"crash{crash_at}"))
        owner.crash_at = crash_at
        in_batches(owner, parts)
        assert owner.crash_at == -1
        assert states(owner) == states(calm), f"crash before commit {crash_at}"
        assert owner.verdicts() == {"ok"}, f"crash before commit {crash_at}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Give a lake with a history as its owner left it."""
    settings = Settings.load(ROOT, environment={}, data=tmp_path_factory.mktemp("whole"))
    parts = [[moved("c", n, n, second=n), moved("u", n, n + 9, second=n + 9)] for n in (1, 2)]
    in_batches(owned(settings), [*parts, [moved("d", 2, 20, second=20)]])
    return settings


BREAKS: dict[str, tuple[Callable[[Intruder], None], set[str]]] = {
    "nothing": (lambda _: None, set()),
    "a state is gone": (lambda on: on.delete("customer_id = 1 and is_current"), {"I1"}),
    "a state is there twice": (lambda on: on.add(lambda row: row["name"] == "n2"), {"I1", "I2"}),
    "a state ends too late": (lambda on: on.update("valid_to", "_at + interval '1 day'", "name = 'n1'"), {"I2"}),
    "a state ends before it begins": (
        lambda on: on.update("valid_to", "valid_from - interval '1 second'", "name = 'n11'"), {"I2"}
    ),
    "a state that has ended is current": (lambda on: on.update("is_current", "true", "name = 'n2'"), {"I2"}),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_the_checker_finds_a_broken_history(whole: Settings, tmp_path: Path, name: str) -> None:
    """Whatever is changed behind the owner's back: a change too few or too many, states that do not follow."""
    shutil.copytree(whole.lake, tmp_path / "lake")
    settings, (spoil, broken) = whole.changed(data=tmp_path), BREAKS[name]

    spoil(Intruder(settings, TABLE))

    with Picture(catalog.load(ROOT), settings.lake) as picture:
        found = {one.invariant for one in check(picture, at_rest=False) if one.place == TABLE}
    assert found == broken


def test_the_present_of_a_history_is_held_against_the_source(whole: Settings) -> None:
    """Only the states that hold now; the others are the past."""
    known = catalog.load(ROOT)
    with Picture(known, whole.lake) as picture:
        rows = picture.tables[TABLE].delta.to_pyarrow_table()
        rows = rows.select([column.name for column in known[TABLE].table.columns] + ["is_current"])
        now = rows.filter(rows["is_current"]).drop_columns(["is_current"])

        assert now.num_rows == 1
        assert not equals(picture, known[TABLE], iter([now]))
        assert equals(picture, known[TABLE], iter([now.slice(1)]))


@pytest.mark.parametrize("late", [False, True])
def test_a_snapshot_ends_what_it_does_not_show(shop: Settings, late: bool) -> None:
    """Customer 2 went while nobody looked; also if an old change of hers comes only after the snapshot."""
    owner = owned(shop)
    old = [moved("c", 1, 50, second=1), moved("c", 2, 51, second=2)]
    other = moved("r", 0, 9, second=7, life=1, last="last")
    other.value = (other.value or b"").replace(b'"customers"', b'"products"')
    snapshot = [moved("r", 1, 9, second=7, life=1, last="last_in_data_collection"), other]

    in_batches(owner, [old[:1], snapshot, old[1:]] if late else [old, snapshot])

    assert states(owner) == [(1, "n50", 1, 7, False), (1, "n9", 7, None, True), (2, "n51", 2, 7, False)]
    assert owner.verdicts() == {"ok"}
    (sheet,) = (one for one in owner.ledger().sheets() if one.table == TABLE)
    assert (sheet.taken, sheet.superseded, sheet.not_mine) == (3, 0, 1)
    with Picture(catalog.load(ROOT), shop.lake) as picture:
        assert not [one for one in check(picture, at_rest=False) if one.place == TABLE]
