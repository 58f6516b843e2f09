"""Small files become few where that pays: the smallest first, cold parts first, and rows stay as they were."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from deltaworks.engine import maintenance
from deltaworks.engine.entry import Counts, Entry
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.maintenance import FILES_MIN, SmallFiles, compact_debts, debts
from deltaworks.engine.partition import Partition
from deltaworks.engine.points import Listener, listening
from deltaworks.errors import CommitLostError, LakeError, LeaseLostError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop, command
from tests.chance import seeded
from tests.flows import BY_ARROW, Log, carry_out
from tests.shop_rows import broken, view

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("value", pa.int64())])
DAY = Partition(name="_day_of_at", column="at", kind=pa.date32())
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
SIZES = (4_000, 32_000, 256_000)
"""For batches of some 2,000 bytes."""


def owned(folder: Path, partition: Partition | None = None) -> OwnedTable:
    """An empty table."""
    entry = Entry(kind="create", app="a", epoch=1)
    return OwnedTable(
        name="silver.things", path=folder / "things", schema=SCHEMA, entry=entry, partition=partition, change_feed=True
    )


def put(table: OwnedTable, *values: int, at: datetime | None = MONDAY) -> None:
    """Append rows as one batch."""
    rows = pa.table({"at": [at] * len(values), "value": values}, schema=SCHEMA)
    counts = Counts(read=len(values), taken=len(values))
    BY_ARROW.commit(table, rows, table.entry.follow("batch", counts=counts))


def values(table: OwnedTable) -> list[int]:
    """What is there."""
    return sorted(table.read()["value"].to_pylist())


def test_few_small_files_are_no_debt(tmp_path: Path) -> None:
    """To write them anew costs more than they do."""
    table = owned(tmp_path)
    for number in range(FILES_MIN - 1):
        put(table, number)
    few = debts(table)
    put(table, FILES_MIN)

    assert few == []
    assert [(debt.part, debt.files) for debt in debts(table)] == [(None, FILES_MIN)]


def test_part_that_got_nothing_for_long_comes_first(tmp_path: Path) -> None:
    """The one that is written to now will have new small files soon; a part without a value is one like any other."""
    table = owned(tmp_path, DAY)
    days = [MONDAY, None, MONDAY + timedelta(days=1)]
    for at in days:
        for number in range(FILES_MIN):
            put(table, number, at=at)
    for number in range(FILES_MIN):
        put(table, number)

    found = [debt.part for debt in debts(table)]
    before = values(table)
    replaced = list(compact_debts(table, command=1, committer=BY_ARROW))

    monday = MONDAY.date()
    assert found == [("_day_of_at", None), ("_day_of_at", monday + timedelta(days=1)), ("_day_of_at", monday)]
    assert replaced == [FILES_MIN, FILES_MIN, 2 * FILES_MIN]
    assert len(table.files()) == 3
    assert values(table) == before
    assert debts(table) == []


@pytest.mark.parametrize("behind", [0, 1])
def test_a_stage_that_begins_at_a_checkpoint(tmp_path: Path, behind: int) -> None:
    """As after a vacuum or a start: the version of the checkpoint may be the table's own."""
    table = owned(tmp_path)
    for number in range(FILES_MIN):
        put(table, number)
    table.checkpoint()
    for number in range(behind):
        put(table, number)
    table.stage.renew()

    assert maintenance.compact(table, command=1, committer=BY_ARROW)

    assert len(table.files()) == 1
    assert values(table) == sorted([*range(FILES_MIN), *range(behind)])


def test_row_is_written_anew_a_few_times_however_many_batches_come(tmp_path: Path) -> None:
    """To put all together whenever there are some small files would write each row eleven times here."""
    chance = seeded()
    table = owned(tmp_path)
    written = 0
    for _ in range(160):
        put(table, *(chance.randrange(2**62) for _ in range(100)))
        there = set(table.files())
        for _ in compact_debts(table, command=1, committer=BY_ARROW, sizes=SIZES):
            files = pa.table(table.delta.get_add_actions()).to_pylist()
            written += sum(file["num_records"] for file in files if file["path"] not in there)
            there = set(table.files())

    assert len(values(table)) == 16_000
    assert len(table.files()) < FILES_MIN * len(SIZES)
    assert 16_000 <= written <= 16_000 * len(SIZES)


def test_order_goes_in_steps_between_which_the_stream_goes_on(tmp_path: Path) -> None:
    """As Airflow gives it; tables beside the table have theirs too, nobody above sees a row twice."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "web"), Log()
    for number in range(FILES_MIN + 1):
        log.send([view(number), broken(b"{")])
        owner.take(log.batch())
    table = owner.flow.inputs["silver.page_views"].table
    before, version = table.read_added(0, table.version).num_rows, table.version

    done = carry_out(owner, command("compact", "silver.page_views", by_debt=True))
    again = carry_out(owner, command("compact", "silver.page_views", by_debt=True))

    side = owner.flow.sides["silver.page_views"]["quarantine"]
    assert (done["files_before"], done["files_after"]) == (FILES_MIN + 1, 1)
    assert again["files_after"] == again["files_before"] == 1
    assert table.version == version + 1
    assert table.read_added(0, table.version).num_rows == before
    assert len(side.files()) < FILES_MIN
    assert owner.verdicts() == {"ok"}


def test_very_many_are_put_together_without_an_order(tmp_path: Path) -> None:
    """A stream that turns each second would leave hundreds until the next order; what few parts have waits for it."""
    cold, warm = MONDAY, MONDAY + timedelta(days=1)
    table, small = owned(tmp_path, DAY), SmallFiles(files_max=3 * FILES_MIN)
    most = 0
    for number in range(FILES_MIN):
        put(table, number, at=cold)
    for number in range(100):
        put(table, FILES_MIN + number, at=warm)
        small.put_together([table], BY_ARROW)
        if table.wants_checkpoint:
            table.checkpoint()
        most = max(most, len(table.files()))

    kinds = [entry.kind for entry in table.entries_backwards()]
    files = [debt for debt in debts(table, files_min=1) if debt.part == ("_day_of_at", cold.date())]
    assert most <= FILES_MIN + 4 * FILES_MIN + 1
    assert 100 // (4 * FILES_MIN + 1) <= kinds.count("compact") <= 100 // (3 * FILES_MIN)
    assert [debt.files for debt in files] == [FILES_MIN]
    assert values(table) == list(range(FILES_MIN + 100))


def test_one_table_at_a_time(tmp_path: Path) -> None:
    """Tables of one app have their commits together: all at once would hold up a batch for seconds."""
    tables = [owned(tmp_path / name) for name in "abc"]
    for table, name in zip(tables, "abc", strict=True):
        table.name = f"silver.{name}"
    small = SmallFiles(files_max=FILES_MIN)
    small.put_together(tables, BY_ARROW)
    for number in range(FILES_MIN):
        for table in tables:
            put(table, number)
    counted = []
    for _ in range(4):
        small.put_together(tables, BY_ARROW)
        counted.append([len(table.files()) for table in tables])

    assert counted == [[1, FILES_MIN, FILES_MIN], [1, 1, FILES_MIN], [1, 1, 1], [1, 1, 1]]


def test_each_part_has_its_turn(tmp_path: Path) -> None:
    """A batch may bring a file to each of many parts: one after each batch is not to be one after twenty."""
    table, small = owned(tmp_path, DAY), SmallFiles(files_max=FILES_MIN)
    days = [MONDAY + timedelta(days=number) for number in range(4)]
    small.put_together([table], BY_ARROW)
    for number in range(FILES_MIN):
        for at in days:
            put(table, number, at=at)
    counted = []
    for _ in range(5):
        small.put_together([table], BY_ARROW)
        counted.append(len(table.files()))

    assert counted == [3 * FILES_MIN + 1, 2 * FILES_MIN + 2, FILES_MIN + 3, 4, 4]


def test_small_files_that_do_not_go_together_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """delta-rs puts together what comes one after the other: not what larger files lie between."""
    chance = seeded()
    table, small = owned(tmp_path), SmallFiles(files_max=FILES_MIN)
    small.put_together([table], BY_ARROW)
    for number in range(FILES_MIN):
        put(table, number)
        put(table, *(chance.randrange(2**62) for _ in range(2 * 10**4)))
    for _ in range(3):
        small.put_together([table], BY_ARROW)
    alternating = len(table.files())
    told = [record.getMessage() for record in caplog.records if record.name == "deltaworks.maintenance"]

    assert alternating == 2 * FILES_MIN
    assert len(told) == 1
    assert told[0].endswith("no two of them come one after the other in the log")


def test_more_bytes_than_are_put_together_at_once_wait_for_an_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where none was given for long: a batch would wait for minutes."""
    table, small = owned(tmp_path), SmallFiles(files_max=FILES_MIN)
    small.put_together([table], BY_ARROW)
    for number in range(FILES_MIN):
        put(table, number)
    monkeypatch.setattr(maintenance, "_BYTES_AT_ONCE", table.bytes() - 1)
    small.put_together([table], BY_ARROW)
    waiting = len(table.files())
    list(compact_debts(table, command=1, committer=BY_ARROW))

    assert (waiting, len(table.files())) == (FILES_MIN, 1)


def test_file_that_cannot_be_read_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may have missed it yet: the table goes on and is told of; what was wrong may have passed much later."""
    monkeypatch.setattr(maintenance, "_AGAIN", 4 * FILES_MIN)
    table, small = owned(tmp_path), SmallFiles(files_max=FILES_MIN)
    small.put_together([table], BY_ARROW)
    for number in range(FILES_MIN):
        put(table, number)
    torn = Path(table.path, table.files()[0])
    whole = torn.read_bytes()
    torn.write_bytes(b"torn")
    for number in range(3 * FILES_MIN):
        small.put_together([table], BY_ARROW)
        put(table, number)
    told = [record.getMessage() for record in caplog.records if record.name == "deltaworks.maintenance"]
    left = len(table.files())
    torn.write_bytes(whole)
    for number in range(2 * FILES_MIN):
        put(table, number)
        small.put_together([table], BY_ARROW)

    assert left == 4 * FILES_MIN
    assert len(told) == 1
    finding = f"{FILES_MIN} small files of a part stay as they are for {4 * FILES_MIN} commits: "
    assert told[0].startswith(f"silver.things: {finding}")
    assert len(table.files()) < 2 * FILES_MIN
    assert len(values(table)) == 6 * FILES_MIN


def test_an_error_of_any_kind_ends_nothing_before_the_commit_and_the_driver_after_it(tmp_path: Path) -> None:
    """Before it the table is as it was; after it there is a version that the table in memory does not know of."""
    table, small = owned(tmp_path), SmallFiles(files_max=FILES_MIN)
    small.put_together([table], BY_ARROW)
    for number in range(FILES_MIN):
        put(table, number)

    def fails(place: str) -> Listener:
        def fail(point: str) -> None:
            if point == f"silver.things.compact.{place}":
                raise ValueError("as if")

        return fail

    with listening(fails("before-commit")):
        small.put_together([table], BY_ARROW)
    before = (len(table.files()), table.version)
    with listening(fails("after-commit")), pytest.raises(CommitLostError, match="does not know it"):
        SmallFiles(files_max=0).put_together([table], BY_ARROW)

    assert before == (FILES_MIN, FILES_MIN)


def test_what_was_replaced_is_not_put_together(tmp_path: Path) -> None:
    """It is about to go."""
    table, small = owned(tmp_path), SmallFiles(files_max=2)
    small.put_together([table], BY_ARROW)
    for number in range(4):
        put(table, number)
    table.outdated = LakeError("silver.things", "has other columns", "Rebuild it")
    small.put_together([table], BY_ARROW)
    outdated = len(table.files())
    table.outdated = None
    put(table, 4)
    small.put_together([table], BY_ARROW)

    assert outdated == 4
    assert len(table.files()) == 1


def test_table_that_is_set_aside_is_left_alone(tmp_path: Path) -> None:
    """Its last batch may be half committed; with it those beside it. The others are put together."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "web"), Log()
    name = "silver.page_views"
    tables = [owner.flow.inputs[name].table, owner.flow.sides[name]["quarantine"], owner.flow.book.table]
    for number in range(4):
        log.send([view(number), broken(b"{")])
        owner.take(log.batch())
        owner.flow.settle()
    owner.flow.suspended.failed(name, ValueError("as if"))
    owner.flow.small_files = owner.flow.files_of_book = SmallFiles(files_max=2)
    before = [len(table.files()) for table in tables]
    for _ in range(12):
        owner.flow.tend()

    after = [len(table.files()) for table in tables]
    assert after[:2] == before[:2] == [4, 4]
    assert after[2] == 1 < before[2]  # the copy of the entries


def test_lease_that_is_lost_meanwhile_ends_it(tmp_path: Path) -> None:
    """It is not one of the errors that leave a table as it is."""
    table, small = owned(tmp_path), SmallFiles(files_max=FILES_MIN)
    small.put_together([table], BY_ARROW)
    for number in range(FILES_MIN):
        put(table, number)

    def lost() -> None:
        raise LeaseLostError("app a", "a newer owner has it", "Nothing to do")

    with pytest.raises(LeaseLostError):
        small.put_together([table], type(BY_ARROW)(spark=None, arrow_bytes_max=2**20, guard=lost))

    assert len(table.files()) == FILES_MIN


def test_who_lost_the_lease_meanwhile_compacts_nothing(tmp_path: Path) -> None:
    """It may take long: the guard is asked when it is done, right before the commit."""
    table = owned(tmp_path)
    for number in range(FILES_MIN):
        put(table, number)
    version = table.version

    def lost() -> None:
        raise LeaseLostError("app a", "a newer owner has it", "Nothing to do")

    losing = type(BY_ARROW)(spark=None, arrow_bytes_max=2**20, guard=lost)
    with pytest.raises(LeaseLostError):
        list(compact_debts(table, command=1, committer=losing))
    left = len(table.files())
    list(compact_debts(table, command=1, committer=BY_ARROW))

    assert left == FILES_MIN
    assert table.version == version + 1
    assert values(table) == list(range(FILES_MIN))
