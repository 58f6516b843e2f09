"""`ops.turns`: where turns went, as their owner tells, and as `profile` and `table show` read it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner, Result

from deltaworks.analyst import connect
from deltaworks.cli import profile, tables
from deltaworks.engine import turns
from deltaworks.engine.phases import PHASES, phase, went_directly, went_ordinarily
from deltaworks.engine.turns import KEEP, MICRO_BATCH, Turns
from deltaworks.errors import DeclarationError, LeaseLostError
from tests.clocks import Clock
from tests.tiny_project import TINY

APP, VIEW = "tiny", "gold.notes_per_day"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the empty lake of a project that the command line finds."""
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(TINY))
    monkeypatch.setenv("DELTAWORKS_DATA", str(tmp_path))
    return tmp_path / "lake"


def owner(lake: Path, *, epoch: int = 1, app: str = APP) -> Turns:
    """Who tells the turns of an app, by a clock that stands still between them."""
    return Turns(app=app, epoch=epoch, lake=lake, guard=lambda: None, clock=Clock())


def turn(
    mine: Turns, rows: int | None, *, table: str = VIEW, direct: bool = False, why: str | None = None, **spent: float
) -> None:
    """One that takes so many rows, goes a way, and spends so many milliseconds in phases."""
    assert isinstance(mine.clock, Clock)
    with mine.measure(table) as watch:
        if direct:
            went_directly()
        if why is not None:
            went_ordinarily(why)
        for name in PHASES:
            with phase(name):
                mine.clock.pass_by(spent.get(name, 0.0) / 1_000)
        watch.rows = rows


def told(lake: Path) -> list[dict[str, Any]]:
    """Every row, in order."""
    with connect(lake) as analyst:
        return analyst.sql("select * from ops.turns order by told_at, table_name, way").dicts()


def call(*words: str) -> Result:
    """Run the command line in this process."""
    main = typer.Typer()
    main.callback()(lambda: None)
    for module in (profile, tables):
        module.register(main)
    result = CliRunner().invoke(main, words)
    if isinstance(result.exception, DeclarationError):
        raise result.exception
    return result


def test_turns_of_a_minute_are_one_row_for_each_way(lake: Path) -> None:
    """Sums of what each took; a turn that took nothing is none."""
    mine = owner(lake)
    for number in (2, 3, None):
        turn(mine, number, direct=True, read=1, commit=10)
    turn(mine, 5, why="a broadcast", read=1, commit=10)
    mine.tell()
    mine.tell()

    rows = told(lake)

    assert [(row["app"], row["epoch"], row["table_name"]) for row in rows] == [(APP, 1, VIEW)] * 2
    assert [(row["turns"], row["rows"], row["way"], row["why"]) for row in rows] == [
        (2, 5, "direct", None),
        (1, 5, "ordinary", "a broadcast"),
    ]
    assert [(row["read_ms"], row["commit_ms"], row["other_ms"]) for row in rows] == [
        (2, pytest.approx(20), 0),
        (1, 10, 0),
    ]
    assert {f"{name}_ms" for name in PHASES} < rows[0].keys()


def test_turn_that_fails_counts(lake: Path) -> None:
    """It took time and no rows."""
    mine = owner(lake)
    assert isinstance(mine.clock, Clock)
    with pytest.raises(OSError, match="full"), mine.measure(VIEW), phase("commit"):
        mine.clock.pass_by(0.5)
        raise OSError("full")
    mine.tell()

    (row,) = told(lake)

    assert (row["turns"], row["rows"], row["commit_ms"]) == (1, 0, 500)


def test_what_cannot_be_told_holds_nobody_up(lake: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is in the log once, and what comes later is told; only who owns the app no longer is stopped."""
    mine, lost = owner(lake), LeaseLostError("app tiny", "owned by another", "Nothing")

    def refuse() -> None:
        raise lost

    for fails in (True, True, False):
        turn(mine, 1)
        if fails:
            mine.path.parent.mkdir(parents=True, exist_ok=True)
            mine.path.write_text("in the way")
        else:
            mine.path.unlink()
        mine.tell()
    turn(mine, 1)
    mine.guard = refuse
    with pytest.raises(LeaseLostError, match="another"):
        mine.tell()

    assert caplog.text.count("where turns went is not told") == 1
    assert [row["turns"] for row in told(lake)] == [1]


def test_a_panic_below_holds_nobody_up_either(
    lake: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What delta-rs panics with is no Exception; what ends the process ends it."""
    mine, raised = owner(lake), [_Panic("called unwrap on a None"), KeyboardInterrupt()]

    def fail(*_: object) -> None:
        raise raised.pop(0)

    monkeypatch.setattr(mine, "_append", fail)
    turn(mine, 1)
    mine.tell()
    turn(mine, 1)
    with pytest.raises(KeyboardInterrupt):
        mine.tell()

    assert "unwrap" in caplog.text


class _Panic(BaseException):
    """As pyo3's."""


def test_two_owners_never_take_the_same_version(
    lake: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two that append at once one is told that it did not."""
    older, newer = owner(lake), owner(lake, epoch=2)
    for one in (older, newer):
        turn(one, 1)
        one.tell()
        turn(one, 2)
    real = older._commit

    def overtaken(delta: deltalake.DeltaTable, rows: pa.Table, *, whole: bool) -> None:
        newer.tell()
        real(delta, rows, whole=whole)

    monkeypatch.setattr(older, "_commit", overtaken)

    older.tell()

    assert "where turns went is not told" in caplog.text
    assert [(row["epoch"], row["rows"]) for row in told(lake)] == [(1, 1), (2, 1), (2, 2)]


def test_old_rows_go_and_so_do_files(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then what is kept becomes one file; files of before are deleted once nobody reads them."""
    monkeypatch.setattr(turns, "RENEW_EACH", 5)
    monkeypatch.setattr(turns, "_FILES_HOURS", 0)
    mine, now = owner(lake), datetime.now(UTC)
    for day in range(8):
        turn(mine, day)
        mine.tell(now=now + timedelta(days=day))

    assert timedelta(days=3) == KEEP
    assert [row["rows"] for row in told(lake)] == [2, 3, 4, 5, 6, 7]  # as of day 5, in version 5
    assert len(list(mine.path.glob("*.parquet"))) == 3


def test_table_of_another_make_gives_way(lake: Path) -> None:
    """What it had is gone; nobody is asked to mend it."""
    mine = owner(lake)
    deltalake.write_deltalake(mine.path, pa.table({"told_at": [1], "of_old": ["x"]}))
    turn(mine, 1)

    mine.tell()

    assert [row["rows"] for row in told(lake)] == [1]
    assert "of_old" not in told(lake)[0]


def test_turns_of_all_apps_are_one_table_as_of_any_time(lake: Path) -> None:
    """Whichever app told them."""
    now = datetime.now(UTC)
    for app, ago in (("web", 3), ("shop", 2)):
        mine = owner(lake, app=app)
        turn(mine, 1)
        mine.tell(now=now - timedelta(minutes=ago))

    with connect(lake) as analyst:
        assert "ops.turns" in analyst.tables()
        every = analyst.sql("select app from ops.turns order by told_at").rows
        then = analyst.sql("select app from ops.turns", as_of=now - timedelta(minutes=2.5)).rows

    assert every == [("web",), ("shop",)]
    assert then == [("web",)]


def test_profile_shows_the_dearest_table_first(lake: Path) -> None:
    """Means per turn, shares of all, and which way most turns went."""
    mine, now = owner(lake), datetime.now(UTC)
    for minute in (40, 2, 1):
        for _ in range(3):
            turn(mine, 2, direct=True, read=1, compute=4, commit=5)
        turn(mine, 2, why="a row raised DIVIDE_BY_ZERO", compute=50)
        turn(mine, 10, table=MICRO_BATCH, read=20)
        mine.tell(now=now - timedelta(minutes=minute))

    first, second = json.loads(call("profile", APP, "--json").stdout)
    printed = call("profile", APP).stdout

    assert first == {
        "table": VIEW, "turns": 8, "rows": 16, "read": 0.8, "parse": 0.0, "compute": 15.5, "commit": 3.8, "other": 0.0,
        "turn": 20.0, "seconds": 0.16, "share": "80%", "way": "direct 6 of 8", "why": "a row raised DIVIDE_BY_ZERO",
    }  # fmt: skip
    assert (second["table"], second["turns"], second["rows"], second["way"]) == (MICRO_BATCH, 2, 20, "none")
    assert printed.index(VIEW) < printed.index(MICRO_BATCH)
    assert "Together 0.2 s of turns in 15 min, 0 %" in printed


def test_profile_of_an_app_that_told_nothing_says_so(lake: Path) -> None:
    """So does one of an app that there is not."""
    assert not lake.exists()
    assert "none told" in call("profile", APP).stdout
    assert json.loads(call("profile", APP, "--json").stdout) == []
    with pytest.raises(DeclarationError, match="nobody"):
        call("profile", "nobody")


def test_table_is_shown_with_the_way_its_transform_goes(lake: Path) -> None:
    """The last one that was told; of a table that a transform does not compute there is none."""
    before = json.loads(call("table", "show", VIEW, "--json").stdout)["computed"]
    mine, now = owner(lake), datetime.now(UTC)
    for minute, why in ((3, None), (2, "a broadcast keeps its first rows")):
        turn(mine, 1, direct=True, why=why)
        mine.tell(now=now - timedelta(minutes=minute))
    turn(mine, 1)  # no key was touched
    mine.tell(now=now)

    shown, text = json.loads(call("table", "show", VIEW, "--json").stdout), call("table", "show", VIEW).stdout
    parsed = json.loads(call("table", "show", "silver.notes", "--json").stdout)

    (lake / "ops" / f"turns_{APP}" / "_delta_log" / f"{0:020d}.json").write_text("torn")
    torn = json.loads(call("table", "show", VIEW, "--json").stdout)

    assert torn["computed"].startswith("not known: ops.turns")
    assert {**torn, "computed": None} == {**shown, "computed": None}
    assert before == "not told yet: no driver has computed it lately"
    assert shown["computed"] == "ordinary: a broadcast keeps its first rows"
    assert "computed     ordinary: a broadcast" in text
    assert parsed["computed"] is None
