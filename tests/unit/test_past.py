"""What an owner cuts from a log is kept beside it: every version opens as it was, and the log stays short."""

import datetime as dt
import io
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltaworks.analyst import Analyst, connect
from deltaworks.engine import maintenance
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.picture import Held
from deltaworks.engine.lake import CHECKPOINT_COMMITS, OwnedTable
from deltaworks.engine.log import first_version, opens_from, read_log, readable_from, whole_from
from deltaworks.engine.past import PAST, segments
from deltaworks.engine.points import listening
from deltaworks.engine.rewind import before, plan, stage
from deltaworks.engine.slices import versions
from deltaworks.engine.through import Lineage
from deltaworks.engine.trimming import COMMITS_FOLLOWED, COMMITS_KEPT, COMMITS_OPENED, STAGED, trim
from deltaworks.errors import LakeError, QueryError
from deltaworks.settings import Settings
from deltaworks.words.outlets import events
from tests.arrow_flow import ArrowOwner as OwnerWithGold
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop, command
from tests.chance import seeded
from tests.flows import BY_ARROW, Crash, Log, between_commits, carry_out
from tests.shop_rows import broken, random_changes, view

VIEWS, GOLD = "silver.page_views", "gold.page_views_per_minute"
KEPT = 10
PARTS = ("a b", "ü%", "x/y", "50%25", "q?&=#", "it's")
SHOWN = "select * exclude (day) from silver.numbers order by all"


@dataclass
class Numbers:
    """A table in parts with odd names, made by delta-rs; after each commit it remembers its rows, and a time."""

    path: Path
    name = "silver.numbers"

    def __post_init__(self) -> None:
        """Nothing is there yet."""
        self.rows: list[list[tuple[Any, ...]]] = []
        self.times: list[dt.datetime] = []

    @property
    def delta(self) -> deltalake.DeltaTable:
        """The newest version."""
        return deltalake.DeltaTable(self.path)

    @property
    def version(self) -> int:
        """Its number."""
        return len(self.rows) - 1

    def commit(self, act: Callable[[], object]) -> None:
        """Do something that commits, once or more often."""
        act()
        newest = self.delta
        while self.version < newest.version():
            self.rows.append(sorted(tuples(newest)))
            self.times.append(between_commits())

    def add(self, number: int, part: str) -> None:
        """Append a row."""
        rows = pa.table({"n": [number], "word": [f"w{number % 7}"], "day": [part]})
        self.commit(lambda: deltalake.write_deltalake(self.path, rows, mode="append", partition_by=["day"]))

    def merge(self, number: int) -> None:
        """Change a row, and so exchange its file."""
        rows = pa.table({"n": [number], "word": ["merged"], "day": [PARTS[number % len(PARTS)]]})
        merger = self.delta.merge(rows, "t.n = s.n", source_alias="s", target_alias="t")
        self.commit(merger.when_matched_update_all().execute)

    def cut(self, *, opened: int = COMMITS_OPENED) -> int:
        """Have its log shortened until there is nothing to do; how many files went."""
        table: Any = self  # it has what is asked of an OwnedTable
        found = 0
        while gone := trim(table, needed=(), kept=KEPT, files_max=1_000, guard=lambda: None, opened=opened):
            found += gone
        return found


def tuples(delta: deltalake.DeltaTable) -> list[tuple[Any, ...]]:
    """Number and word of each row."""
    rows = pa.table(delta.to_pyarrow_table())
    return list(zip(rows["n"].to_pylist(), rows["word"].to_pylist(), strict=True))


def fill(numbers: Numbers, commits: int) -> None:
    """Appends, merges, deletions, compactions and checkpoints in any order."""
    chance, upto = seeded(), numbers.version + commits
    while numbers.version < upto:
        number = numbers.version + 1
        numbers.add(number, PARTS[number % len(PARTS)])
        if chance.random() < 0.3:
            numbers.merge(chance.randrange(number + 1))
        if chance.random() < 0.1:
            numbers.commit(partial(numbers.delta.delete, f"n = {chance.randrange(number + 1)}"))
        if chance.random() < 0.1:
            numbers.commit(numbers.delta.optimize.compact)
        if chance.random() < 0.3:
            numbers.delta.create_checkpoint()
    numbers.delta.create_checkpoint()


def log_files(path: Path) -> list[int]:
    """Versions whose commits are in the log itself."""
    return sorted(int(file.stem) for file in (path / "_delta_log").glob("*.json") if file.stem.isdigit())


def as_of(analyst: Analyst, numbers: Numbers, version: int) -> list[tuple[Any, ...]]:
    """What an analyst is told of the time when a version was the newest."""
    return analyst.sql(SHOWN, as_of=numbers.times[version]).rows


def held(numbers: Numbers, version: int) -> list[tuple[Any, ...]]:
    """What delta-rs reads of a version."""
    return sorted(tuples(Held(numbers.name, numbers.path, version).delta))


@pytest.fixture
def numbers(tmp_path: Path) -> Numbers:
    """Give a table without commits."""
    return Numbers(tmp_path / "lake" / "silver" / "numbers")


def test_every_version_opens_as_it_was_when_it_was_the_newest(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For analysts and for delta-rs, however often and in whatever pieces the log was cut; a VACUUM sees nothing."""
    monkeypatch.setattr("deltaworks.engine.trimming._SEGMENT_COMMITS_MAX", 15)
    with connect(numbers.path.parents[1]) as analyst:
        for _ in range(3):
            fill(numbers, 25)
            numbers.cut()
            assert as_of(analyst, numbers, numbers.version) == numbers.rows[-1]

        assert [as_of(analyst, numbers, version) for version in range(numbers.version + 1)] == numbers.rows
        assert analyst.sql(SHOWN).rows == numbers.rows[-1]
        assert analyst.tables() == ("silver.numbers",)
    assert [held(numbers, version) for version in range(0, numbers.version + 1, 7)] == numbers.rows[::7]
    assert len(segments(numbers.path)) > 3
    assert log_files(numbers.path)[0] > 40
    assert (first_version(numbers.path), opens_from(numbers.path), readable_from(numbers.path)) == (0, 0, 0)
    doomed = numbers.delta.vacuum(retention_hours=0, enforce_retention_duration=False, full=True)
    assert doomed
    assert not [name for name in doomed if PAST in name]


def test_a_log_stays_as_short_as_it_was_however_long_the_past_is(numbers: Numbers) -> None:
    """Who commits, and who opens the table, pays for what is in the log; the past has its own bound."""
    lengths, kept = list[int](), list[int]()
    for _ in range(5):
        fill(numbers, 25)
        numbers.cut(opened=60)
        lengths.append(len(log_files(numbers.path)))
        kept.append(numbers.version - opens_from(numbers.path))

    for segment in segments(numbers.path):
        with zipfile.ZipFile(segment.file) as found:
            names = [name for name in found.namelist() if name.endswith(".parquet")]
            tables = [pq.read_table(io.BytesIO(found.read(name))) for name in names]
        assert names
        assert all(one["remove"].null_count == one.num_rows for one in tables)
    assert max(lengths) <= 40
    assert len(list((numbers.path / "_delta_log").iterdir())) < 60
    assert max(kept) <= 110
    assert kept[-1] >= 60
    first = opens_from(numbers.path)
    assert first > 0
    assert [held(numbers, version) for version in (first, first + 1)] == numbers.rows[first : first + 2]
    with pytest.raises(LakeError, match=f"version {first - 1} cannot be opened, those from {first} on can"):
        Held(numbers.name, numbers.path, first - 1)
    with connect(numbers.path.parents[1]) as analyst:
        with pytest.raises(QueryError, match="what it was then is not kept any more") as raised:
            as_of(analyst, numbers, first - 1)
        since = dt.datetime.fromisoformat(raised.value.next_step.split()[3])
        assert analyst.sql(SHOWN, as_of=since).rows == numbers.rows[first]
    assert COMMITS_KEPT <= 1_000 < COMMITS_FOLLOWED < 25_000 <= COMMITS_OPENED


def test_an_owner_that_dies_anywhere_leaves_each_version_in_log_or_past(numbers: Numbers, tmp_path: Path) -> None:
    """It dies before and after each step in turn; the next owner goes on, and ends as if nobody had died."""
    fill(numbers, 24)
    saved, died = tmp_path / "saved", set[str]()
    shutil.copytree(numbers.path, saved)
    for deadly in range(1, 1_000):
        left = [deadly]

        def die(point: str, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                died.add(point)
                raise Crash(point)

        shutil.rmtree(numbers.path)
        shutil.copytree(saved, numbers.path)
        try:
            with listening(die):
                numbers.cut()
        except Crash:
            told = log_files(numbers.path)
            assert told == list(range(told[0], told[-1] + 1))
            assert numbers.delta.version() == numbers.version
            assert all(read_log(numbers.path, version) for version in range(numbers.version + 1))
            assert opens_from(numbers.path) == 0
            first = whole_from(numbers.path)
            some = {0, told[0], max(told[0] - 1, 0), first, max(first - 1, 0), numbers.version - KEPT}
            assert {version: held(numbers, version) for version in some} == {one: numbers.rows[one] for one in some}
            numbers.cut()
            ends = [one.last + 1 for one in segments(numbers.path)]
            assert 0 < log_files(numbers.path)[0] <= whole_from(numbers.path) <= ends[-1]
            assert held(numbers, told[0]) == numbers.rows[told[0]]
        else:
            break

    assert died == {f"silver.numbers.trim.{step}" for step in ("before-write", "after-write", "before-delete")}
    with connect(numbers.path.parents[1]) as analyst:
        assert [as_of(analyst, numbers, version) for version in range(numbers.version + 1)] == numbers.rows


def test_a_torn_segment_of_an_owner_that_died_is_not_there(numbers: Numbers) -> None:
    """It has no name yet, and the next one clears it away."""
    fill(numbers, 60)
    torn = numbers.path / PAST / f"{0:020d}.{9:020d}.new"
    torn.parent.mkdir()
    torn.write_bytes(b"PK")

    assert (segments(numbers.path), held(numbers, 0)) == ([], numbers.rows[0])
    assert numbers.cut() > 0

    assert not torn.exists()
    assert held(numbers, 0) == numbers.rows[0]


def test_a_full_disk_costs_no_version(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be put aside is not deleted; nothing is left of the attempt."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    fill(numbers, 60)
    whole = sorted(os.listdir(numbers.path / "_delta_log"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert numbers.cut() == 0

    assert sorted(os.listdir(numbers.path / "_delta_log")) == whole
    assert not os.listdir(numbers.path / PAST)
    assert numbers.cut() > 0


def test_a_full_disk_gets_the_room_that_can_be_made(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody is promised any more goes, and nothing else."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    fill(numbers, 60)
    numbers.cut()
    aside = segments(numbers.path)[-1].last
    fill(numbers, 60)
    begun = log_files(numbers.path)[0]
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        numbers.cut(opened=numbers.version - aside - 1)

    assert segments(numbers.path) == []
    assert log_files(numbers.path)[0] == begun
    assert [held(numbers, version) for version in (begun, numbers.version)] == [numbers.rows[begun], numbers.rows[-1]]


def test_a_damaged_segment_is_named(numbers: Numbers) -> None:
    """Nothing is guessed; the log itself is not touched by it."""
    fill(numbers, 60)
    numbers.cut()
    segments(numbers.path)[0].file.write_bytes(b"not a segment")

    with pytest.raises(LakeError, match="is damaged"):
        held(numbers, 0)
    with connect(numbers.path.parents[1]) as analyst:
        with pytest.raises(QueryError, match=r"cannot be read \(.* is damaged\)"):
            as_of(analyst, numbers, 0)
        assert as_of(analyst, numbers, numbers.version) == numbers.rows[-1]


def test_a_damaged_segment_stops_no_owner(numbers: Numbers, caplog: pytest.LogCaptureFixture) -> None:
    """Its log is not shortened meanwhile, and that is told; brought back, it goes on."""
    fill(numbers, 60)

    def die(point: str) -> None:
        if point.endswith("before-delete"):
            raise Crash(point)

    with pytest.raises(Crash), listening(die):  # both log and past have what was put aside
        numbers.cut()
    newest = segments(numbers.path)[-1]
    saved = newest.file.read_bytes()
    newest.file.write_bytes(b"not a segment")

    assert numbers.cut() == 0
    assert f"{newest.file} is damaged" in caplog.text

    newest.file.write_bytes(saved)
    assert numbers.cut() > 0
    assert held(numbers, 0) == numbers.rows[0]


def test_reading_goes_on_while_the_owner_cuts(numbers: Numbers) -> None:
    """At each step of the owner, by who has just begun to read and who begins then."""
    fill(numbers, 60)
    with connect(numbers.path.parents[1]) as analyst:
        found = list[int]()

        def look(_: str) -> None:
            version = 5 * len(found) % 45
            found.append(version)
            assert as_of(analyst, numbers, version) == numbers.rows[version]
            assert held(numbers, version) == numbers.rows[version]

        with listening(look):
            numbers.cut()

        assert len(found) > 30


def test_a_log_that_is_cut_between_question_and_answer_is_asked_again(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version was in the log when its files were looked at."""
    fill(numbers, 60)
    looked, asked = Analyst._has_its_files, list[Path]()

    def cut_meanwhile(self: Analyst, question: Any, folder: Path, version: int) -> bool:
        asked.append(folder)
        if len(asked) == 1:
            numbers.cut()
        return looked(self, question, folder, version)

    monkeypatch.setattr(Analyst, "_has_its_files", cut_meanwhile)
    with connect(numbers.path.parents[1]) as analyst:
        assert as_of(analyst, numbers, 20) == numbers.rows[20]

    assert asked[0] == numbers.path != asked[-1]


def test_who_asks_writes_nothing_into_the_lake_and_leaves_nothing(numbers: Numbers, tmp_path: Path) -> None:
    """An analyst may have no right to write there; what was laid out goes with the connection, or with the handle."""
    fill(numbers, 60)
    numbers.cut()
    lake, scratch = numbers.path.parents[1], tmp_path / "scratch"
    scratch.mkdir()
    there = {path: path.lstat() for path in lake.rglob("*")}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tempfile.tempdir", str(scratch))
        with connect(lake) as analyst:
            assert not list(scratch.iterdir())
            assert as_of(analyst, numbers, 3) == numbers.rows[3]
            assert as_of(analyst, numbers, 4) == numbers.rows[4]
            assert list(scratch.iterdir())
        assert held(numbers, 3) == numbers.rows[3]

    assert not list(scratch.iterdir())
    assert {path: path.lstat().st_mtime_ns for path in lake.rglob("*")} == {
        path: found.st_mtime_ns for path, found in there.items()
    }


def test_a_past_of_another_life_makes_way(numbers: Numbers, tmp_path: Path) -> None:
    """As after a copy of a lake at work: the log is of the time when it began, the past of when it ended."""
    fill(numbers, 20)
    begun = numbers.version + 1
    shutil.copytree(numbers.path, tmp_path / "log")
    fill(numbers, 30)
    numbers.cut()
    shutil.copytree(numbers.path / PAST, tmp_path / "log" / PAST)
    shutil.rmtree(numbers.path)
    shutil.copytree(tmp_path / "log", numbers.path)
    del numbers.rows[begun:], numbers.times[begun:]
    fill(numbers, 45)

    numbers.cut()

    assert segments(numbers.path)[-1].last > begun
    assert [held(numbers, version) for version in range(numbers.version + 1)] == numbers.rows


def test_a_log_that_something_else_has_cut_ends_the_past_there(numbers: Numbers) -> None:
    """What lies before the hole is not reached any more, and makes way for what begins now."""
    fill(numbers, 30)
    numbers.cut()
    fill(numbers, 30)
    numbers.delta.create_checkpoint()
    newest = numbers.version
    for version in log_files(numbers.path):
        if version < newest:
            (numbers.path / "_delta_log" / f"{version:020d}.json").unlink()
    for file in (numbers.path / "_delta_log").glob("*.checkpoint*.parquet"):
        if int(file.name[:20]) < newest:
            file.unlink()

    assert opens_from(numbers.path) == newest
    fill(numbers, 30)
    numbers.cut()

    assert opens_from(numbers.path) == newest
    assert next(iter(segments(numbers.path))).first == newest
    assert [held(numbers, version) for version in (newest, newest + 1)] == numbers.rows[newest : newest + 2]


def table(owner: ArrowOwner, name: str = VIEWS) -> OwnedTable:
    """A table as its owner has it."""
    return next(one for one in owner.flow.tables() if one.name == name)


def work(owner: ArrowOwner, log: Log, *numbers: int) -> Iterator[dt.datetime]:
    """A micro-batch for each of these views, some malformed, and a time after it; the logs get their checkpoints."""
    for number in numbers:
        log.send([view(number, user=number), *([broken(b"{")] if number % 5 == 0 else ())])
        owner.take(log.batch())
        owner.flow.tend()
        yield between_commits()


def cut(owner: ArrowOwner, name: str = VIEWS) -> int:
    """Have the logs shortened as far as the driver would; from where on the table's own log has its commits."""
    owner.flow.commits_kept = KEPT
    owner.flow.settle()
    while owner.flow.trim():
        pass
    return log_files(table(owner, name).path)[0]


def faultless(owner: ArrowOwner) -> bool:
    """Whether books and checker find nothing."""
    verdicts = owner.verdicts()
    with Picture(owner.catalog, owner.settings.lake) as picture:
        return (verdicts, check(picture, at_rest=True)) == ({"ok"}, [])


def rewound(owner: ArrowOwner, name: str, to: int | dt.datetime, *, number: int) -> int:
    """Take a table back, as the command line and the owner do; the version that it went to."""
    past = plan(name, catalog=owner.catalog, lake=owner.settings.lake, to=to)
    folder = owner.settings.data / STAGED / str(number)
    folder.mkdir(parents=True)
    stage(past, catalog=owner.catalog, lake=owner.settings.lake, folder=folder)
    carry_out(owner, command("publish", name, number=number, folder=str(number)))
    shutil.rmtree(folder)
    return past[0].version


@dataclass
class Life:
    """An owner of sixty commits whose logs were cut, with what its table had at each version, and times."""

    owner: ArrowOwner
    log: Log
    rows: list[int]
    times: list[dt.datetime]

    def told(self) -> list[int]:
        """How many rows an analyst is told of each version."""
        with connect(self.owner.settings.lake) as analyst:
            asked = (analyst.sql(f"select count(*) from {VIEWS}", as_of=time) for time in self.times)
            return [int(str(answer.rows[0][0])) for answer in asked]

    def note(self) -> None:
        """Remember what the table has now."""
        self.rows.append(len(self.owner.rows(VIEWS)))
        self.times.append(between_commits())


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """Give an owner of some sixty commits, whose logs were cut."""
    folder, log = tmp_path_factory.mktemp("lived"), Log()
    owner = ArrowOwner(Shop(folder / "project").without_gold().settings(folder / "data"), "web")
    times = list(work(owner, log, *range(60)))
    assert cut(owner) > 30
    return Life(owner, log, list(range(1, 61)), times)


@pytest.fixture
def life(lived: Life, tmp_path: Path) -> Life:
    """Give an owner of a copy of them."""
    folder = lived.owner.settings.data.parent
    for name in ("project", "data"):
        shutil.copytree(folder / name, tmp_path / name)
    settings = Settings.load(tmp_path / "project", environment={}, data=tmp_path / "data")
    return Life(ArrowOwner(settings, "web"), deepcopy(lived.log), [*lived.rows], [*lived.times])


def test_a_rewind_reaches_into_the_past_and_each_life_answers_for_itself(life: Life) -> None:
    """By version and by time; the books balance, and what was told before the rewind is told as it was."""
    owner = life.owner
    whole = owner.rows(VIEWS)
    places: tuple[int | dt.datetime, ...] = (7, life.times[25], 1)
    for number, to in enumerate(places):
        version = rewound(owner, VIEWS, to, number=number)
        assert table(owner).entry.back_to == version
        published = deltalake.DeltaTable(str(table(owner).path)).to_pyarrow_table().num_rows
        life.note()
        owner.take(Log().batch())
        life.note()

        assert published == version
        assert owner.rows(VIEWS) == whole
        assert faultless(owner)
        life.times += list(work(owner, life.log, *range(60 + 20 * number, 80 + 20 * number)))
        life.rows += [len(whole) + one for one in range(1, 21)]
        whole = owner.rows(VIEWS)
        cut(owner)

    assert life.told() == life.rows
    assert faultless(owner)


def test_a_rewind_that_goes_back_less_far_than_what_is_damaged(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at some commits around its version, for a clock that was set back: not at all that there are."""
    monkeypatch.setattr("deltaworks.engine.rewind._SET_BACK", 10)
    monkeypatch.setattr("deltaworks.engine.breaker.COMMITS_MAX", 10)
    owner = life.owner
    list(work(owner, life.log, *range(60, 120)))
    cut(owner)
    oldest = segments(table(owner).path)[0]
    oldest.file.write_bytes(b"not a segment")
    whole, near = owner.rows(VIEWS), oldest.last + 12

    assert rewound(owner, VIEWS, near, number=1) == near
    owner.take(Log().batch())
    with pytest.raises(LakeError, match="is damaged"):
        plan(VIEWS, catalog=owner.catalog, lake=owner.settings.lake, to=oldest.last)

    assert owner.rows(VIEWS) == whole


def test_a_rewind_after_an_owner_died_while_it_cut(life: Life) -> None:
    """The version is in the past and, in part, in the log."""
    owner, whole = life.owner, 100

    def die(point: str) -> None:
        if point == f"{VIEWS}.trim.before-delete":
            died.append(point)
        if len(died) == 5:
            raise Crash(point)

    life.times += list(work(owner, life.log, *range(60, whole)))
    owner.flow.settle()
    died = list[str]()
    owner.flow.commits_kept = KEPT
    with listening(die), pytest.raises(Crash):
        while owner.flow.trim():
            pass
    first = log_files(table(owner).path)[0]
    assert first + 1 < whole_from(table(owner).path)
    owner.start()

    assert rewound(owner, VIEWS, first + 1, number=1) == first + 1
    owner.take(Log().batch())

    assert len(owner.rows(VIEWS)) == whole
    assert faultless(owner)


def test_refusals_tell_from_where_on_it_is_possible(life: Life) -> None:
    """The past ends too."""
    owner = life.owner
    name, lake = VIEWS, owner.settings.lake
    assert before(name, catalog=owner.catalog, lake=lake, since=("page_views", 0, 0)) <= 1
    list(work(owner, life.log, *range(60, 100)))
    owner.flow.commits_opened = 50
    cut(owner)
    first = opens_from(table(owner).path)
    assert 0 < first < log_files(table(owner).path)[0]

    with pytest.raises(LakeError, match=rf"cannot go back to version {first - 1}.*from {first} on are possible"):
        plan(name, catalog=owner.catalog, lake=lake, to=first - 1)
    with pytest.raises(LakeError, match=f"begins at version {first}, after that time"):
        plan(name, catalog=owner.catalog, lake=lake, to=life.times[0])
    with pytest.raises(LakeError, match="neither its log nor its past goes back so far"):
        before(name, catalog=owner.catalog, lake=lake, since=("page_views", 0, 0))
    assert plan(name, catalog=owner.catalog, lake=lake, to=first)[0].version == first


def test_tables_of_changes_go_back_with_those_beside_them(tmp_path: Path) -> None:
    """Merges exchange files; what is remembered of deletions, and what was refused, is of the same time."""
    project, records = Shop(tmp_path / "project").without_gold(), random_changes(seeded(), 240)
    owner, log, name = ArrowOwner(project.settings(tmp_path / "data"), "shop"), Log(), "silver.orders"
    held = {}
    for number in range(60):
        log.send(records[4 * number : 4 * number + 4])
        owner.take(log.batch())
        owner.flow.tend()
        held[table(owner, name).version] = owner.rows(name)
    whole = owner.rows(name)
    first = cut(owner, name)
    some = [version for version in held if version < first][5::9]
    assert len(some) > 1

    for number, version in enumerate(some):
        rewound(owner, name, version, number=number)
        assert owner.rows(name) == held[version]
        owner.take(Log().batch())
        assert owner.rows(name) == whole
        assert faultless(owner)


def test_a_log_that_is_followed_from_outside_stays_longer(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change feeds are told from the log alone, and who follows them is in no entry."""
    monkeypatch.setattr("deltaworks.engine.flow.COMMITS_FOLLOWED", 60)
    owner, declared = life.owner, life.owner.catalog[VIEWS]
    followed = replace(declared.table, publishes=events("views_told", key=("user_id",)))
    tables = {**owner.flow.catalog.tables, VIEWS: replace(declared, table=followed)}
    owner.flow.catalog = replace(owner.flow.catalog, tables=tables)
    list(work(owner, life.log, *range(60, 160)))

    first, other = cut(owner), log_files(table(owner, "bronze.web_events").path)[0]

    assert table(owner).version - 60 - KEPT <= first + 2 * CHECKPOINT_COMMITS
    assert first <= table(owner).version - 60 < other


def test_a_reader_that_is_put_back_takes_from_the_past(tmp_path: Path) -> None:
    """What it needs of an input's log was cut while it was ahead; until it has taken it, the past is not cut."""
    owner = OwnerWithGold(Shop(tmp_path / "project").settings(tmp_path), "web")
    for number in range(60):
        owner.log.send([view(number, user=number)])
        owner.bronze()
        owner.silver()
        owner.gold(GOLD)
        owner.flow.tend()
    owner.flow.commits_kept = KEPT
    owner.flow.settle()
    silver, gold = owner.flow.inputs[VIEWS], owner.flow.inputs[GOLD].table
    taken = gold.version - 50
    entry = Lineage(owner.settings.lake).entry(GOLD, taken)
    assert entry is not None
    after = entry.position.versions[VIEWS]
    assert log_files(silver.table.path)[0] > after + 1
    nobody: Any = None  # no DataFrame is made of so few rows

    found = versions(nobody, silver, after=after, bytes_max=2**30, reader=GOLD)
    (past,) = plan(GOLD, catalog=owner.catalog, lake=owner.settings.lake, to=taken)

    assert found is not None
    assert isinstance(found.rows, pa.Table)
    assert found.rows.num_rows == silver.table.read().num_rows - after
    assert (past.version, past.again) == (taken, 50)
    behind: Any = silver.table
    trim(behind, needed=(after + 1,), kept=KEPT, files_max=99, guard=lambda: None, opened=1)
    assert (first_version(silver.table.path) or 0) <= after + 1


def test_a_lake_without_its_copies_tells_what_the_past_tells(life: Life) -> None:
    """The book is written again from log and past."""
    owner = life.owner
    told = [entry.to_json() for entry in table(owner).entries_backwards()]
    shutil.rmtree(owner.flow.book.table.path)
    owner.start()

    assert [entry.to_json() for entry in table(owner).entries_backwards()][-len(told) :] == told
    owner.flow.settle()
    with connect(owner.settings.lake) as analyst:
        counted = analyst.sql(f"select count(*) from ops.ledger where table_name = '{VIEWS}'").rows

    assert counted == [(table(owner).version + 1,)]


def test_a_table_that_is_made_anew_has_no_past(life: Life) -> None:
    """Somebody has taken its log away and left the rest."""
    path = table(life.owner).path
    assert segments(path)
    shutil.rmtree(path / "_delta_log")
    life.owner.start()

    assert not segments(path)
    assert opens_from(path) == 0
    assert Held(VIEWS, path, 0).rows() == 0


def test_what_a_vacuum_has_taken_is_refused(life: Life) -> None:
    """Files that no version needs cost nothing; a version of which files are gone is as one of the log."""
    owner, path = life.owner, table(life.owner).path
    (path / "part-stray.parquet").write_bytes(b"")
    os.utime(path / "part-stray.parquet", (10**9, 10**9))
    maintenance.vacuum(table(owner), readers={}, hours=0, command=1, committer=BY_ARROW)
    assert not (path / "part-stray.parquet").exists()
    assert life.told() == life.rows

    maintenance.compact(table(owner), command=2, committer=BY_ARROW)
    maintenance.vacuum(table(owner), readers={}, hours=0, command=3, committer=BY_ARROW)

    assert first_version(path) == 0
    with connect(owner.settings.lake) as analyst, pytest.raises(QueryError, match="is not kept any more"):
        analyst.sql(f"select * from {VIEWS}", as_of=life.times[0])
