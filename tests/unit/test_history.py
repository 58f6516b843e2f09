"""`history` on the Arrow path, which needs no JVM: every order, every cut, death before every commit."""

from pathlib import Path

import pyarrow as pa
import pytest

from deltaworks.engine.flow import Flow
from deltaworks.settings import ROOT, Settings
from tests.chance import seeded
from tests.customers import TABLE, a_source, in_batches, moved, shuffled, states, verdict
from tests.flows import Owner


class Handed:
    """A micro-batch that is small enough to be collected: all that the Arrow path asks of Spark."""

    sparkSession = None  # noqa: N815  # Spark's name

    def __init__(self, rows: pa.Table) -> None:
        """Hand on these rows."""
        self.rows = rows

    def toArrow(self) -> pa.Table:  # noqa: N802  # Spark's name
        """As Spark's."""
        return self.rows


class Hand:
    """What makes micro-batches."""

    def createDataFrame(self, rows: pa.Table) -> Handed:  # noqa: N802  # Spark's name
        """As Spark's."""
        return Handed(rows)


class Alone(Owner):
    """The owner of the history alone: the app's views need Spark."""

    table = TABLE

    def __init__(self, settings: Settings, app: str = "shop") -> None:
        """Open the first flow."""
        super().__init__(Hand(), settings, app)  # type: ignore[arg-type]  # see Hand

    def start(self) -> Flow:
        """Begin anew."""
        flow = super().start()
        flow.writers = [writer for writer in flow.writers if writer.declared.name == self.table]
        return flow


@pytest.fixture
def shop(tmp_path: Path) -> Settings:
    """Give the shop's settings with an empty lake of this test's own."""
    return Settings.load(ROOT, environment={}, data=tmp_path)


def test_states_follow_each_other(shop: Settings) -> None:
    """A late change lands at its place; a number given away, a deletion and a return leave their gaps; copies nothing.

    The deletion of 2 comes before its rows; the one of 1 and the row of 11 have one sequence.
    """
    owner = Alone(shop)

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
    owner, cut = Alone(shop), moved("t", 0, 5, second=5)

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
    assert verdict(owner) == "ok"


def test_a_row_read_by_two_snapshots_is_there_since_the_first(shop: Settings) -> None:
    """Nothing was written between them, so they have one sequence; their times differ. Whichever comes first."""
    first, second = moved("r", 1, 1, second=1), moved("r", 1, 1, second=9)

    for number, parts in enumerate(([[first], [second]], [[first, second]])):
        owner = Alone(shop.changed(data=shop.data / str(number)))
        in_batches(owner, parts)
        assert states(owner) == [(1, "n1", 1, None, True)]
        assert verdict(owner) == "ok"


def test_a_change_without_its_time_is_refused(shop: Settings) -> None:
    """An interval would begin nowhere. A table of present states does not ask for it."""
    owner, record = Alone(shop), moved("c", 1, 1, second=0)
    record.value = (record.value or b"").replace(b'"ts_us"', b'"x"').replace(b'"ts_ms"', b'"y"')

    in_batches(owner, [[record, moved("c", 2, 2, second=0)]])

    assert [row[0] for row in states(owner)] == [2]
    side = owner.flow.sides[TABLE]["quarantine"]
    assert side.read(["reason"]).to_pylist() == [{"reason": "source: no usable time"}]
    assert verdict(owner) == "ok"


@pytest.mark.parametrize("run", range(5))
def test_order_and_cuts_make_no_difference(shop: Settings, run: int) -> None:
    """In order and at once, or shuffled over batches with copies and a restart."""
    chance = seeded()
    records = a_source(chance, 40 + 20 * run)
    calm, wild = (Alone(shop.changed(data=shop.data / name)) for name in ("calm", "wild"))
    in_batches(calm, [records])
    parts = shuffled(chance, records, cuts=2 + run)

    in_batches(wild, parts[:1])
    wild.start()
    in_batches(wild, parts)  # from the log's beginning: what bronze has is left out

    assert any(row[4] for row in states(calm))
    assert any(not row[4] for row in states(calm))
    assert states(wild) == states(calm)
    assert (verdict(calm), verdict(wild)) == ("ok", "ok")


def test_death_before_any_commit_changes_nothing(shop: Settings) -> None:
    """Ends are remembered before the table is committed: what a crash leaves there comes again, once."""
    chance = seeded()
    parts = shuffled(chance, a_source(chance, 40), cuts=4)
    calm = Alone(shop.changed(data=shop.data / "calm"))
    opened = calm.commits
    in_batches(calm, parts)
    assert calm.commits - opened >= 8  # four batches: bronze and table, and ends now and then

    for crash_at in range(opened, calm.commits):
        owner = Alone(shop.changed(data=shop.data / f"crash{crash_at}"))
        owner.crash_at = crash_at
        in_batches(owner, parts)
        assert owner.crash_at == -1
        assert states(owner) == states(calm), f"crash before commit {crash_at}"
        assert verdict(owner) == "ok", f"crash before commit {crash_at}"
