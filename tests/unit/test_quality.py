"""What needs no Great Expectations: verdicts, rows of ops.quality, pages, suites that are written back."""

import datetime as dt
import http.client
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import deltalake
import pytest

from deltaworks import suites
from deltaworks.engine.datasets import dataset_of
from deltaworks.errors import DeclarationError, QualityError
from deltaworks.quality.planning import identity, is_held
from deltaworks.quality.verdict import Judged, Outcome, Verdict
from deltaworks.suites import Expectation, Severity
from deltaworks.validation import ops_quality
from deltaworks.validation.pages import server

COLUMNS = ("day", "orders")


def judged(verdict: Verdict, severity: Severity = "critical", column: str = "day", then: str = "tell") -> Judged:
    """An expectation with a verdict."""
    meta, kwargs = {"then": then}, {"column": column}
    one = Expectation(type="expect_column_values_to_not_be_null", kwargs=kwargs, severity=severity, meta=meta)
    return Judged(expectation=one, verdict=verdict, result="{}")


def outcome(*found: Judged, days: tuple[str, ...] = (), run: str = "r") -> Outcome:
    """A suite that was judged."""
    at = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
    return Outcome(run_id=run, judged_at=at, table="gold.daily_orders", version=7, days=days, judged=found)


def rows(lake: Path) -> list[dict[str, object]]:
    """All of ops.quality."""
    found = dataset_of(deltalake.DeltaTable(lake / "ops/quality")).to_table().to_pylist()
    assert isinstance(found, list)
    return found


def test_what_nobody_knows_is_not_passed() -> None:
    """A failure is told before it; warnings have no say."""
    assert outcome(judged("passed"), judged("failed", "warning"), judged("unknown", "warning")).verdict == "passed"
    assert outcome(judged("passed"), judged("unknown")).verdict == "unknown"
    assert outcome(judged("unknown"), judged("failed", column="orders")).verdict == "failed"
    reason = outcome(judged("unknown"), judged("failed", column="orders"), judged("passed")).reason
    assert reason == (
        "expect_column_values_to_not_be_null(day) unknown, expect_column_values_to_not_be_null(orders) failed"
    )


def test_what_is_unmet_is_told_of_what_suspends_alone() -> None:
    """Also where nobody could say; what was judged is told too, so that what is met suspends no longer."""
    found = [judged("failed"), judged("unknown", column="orders"), judged("passed", column="revenue")]
    names = [identity(one.expectation) for one in found]

    assert outcome(*found).unmet(names[1:]) == (
        {names[1]: "expect_column_values_to_not_be_null(orders) unknown"}, {*names[1:]},
    )  # fmt: skip
    assert outcome(judged("failed", "warning")).unmet(names) == ({}, set())
    assert len({*names}) == 3


def test_a_day_is_held_by_what_holds_days_alone() -> None:
    """What only fails the run has no say in it."""
    told_only = outcome(judged("failed"), judged("passed", column="orders", then="hold"))
    holding = outcome(judged("passed"), judged("unknown", column="orders", then="hold"))

    of_one = outcome(replace(judged("failed", then="hold"), day="2026-11-19"), days=("2026-11-19", "2026-11-20"))

    assert (told_only.verdict, told_only.of_day("2026-11-20")) == ("failed", ("passed", ""))
    assert holding.of_day("2026-11-20") == ("unknown", "expect_column_values_to_not_be_null(orders) unknown")
    assert [of_one.of_day(day)[0] for day in of_one.days] == ["failed", "passed"]


@pytest.mark.parametrize("text", [None, "", "# nothing yet", "name: gold.carts"])
def test_half_a_suite_lets_no_day_go(tmp_path: Path, text: str | None) -> None:
    """A file that is just being written, or is away for a moment, is no suite that holds nothing back."""
    file = tmp_path / "expectations/gold/carts.yml"
    file.parent.mkdir(parents=True)
    if text is not None:
        file.write_text(text)

    with pytest.raises(DeclarationError, match="has no expectations"):
        is_held(tmp_path, "gold.carts")


def test_each_expectation_is_a_row_for_each_day(tmp_path: Path) -> None:
    """Or one row, where it was for no day."""
    ops_quality.tell(tmp_path, outcome(judged("passed"), judged("failed"), days=("2026-11-19", "2026-11-20")))
    ops_quality.tell(tmp_path, outcome(judged("unknown"), run="s"))

    found = rows(tmp_path)

    assert [(one["run_id"], one["day"], one["verdict"]) for one in sorted(found, key=str)] == sorted(
        [
            ("r", dt.date(2026, 11, 19), "passed"), ("r", dt.date(2026, 11, 19), "failed"),
            ("r", dt.date(2026, 11, 20), "passed"), ("r", dt.date(2026, 11, 20), "failed"), ("s", None, "unknown"),
        ],
        key=str,
    )  # fmt: skip


def test_two_that_append_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody owns the table: each has its rows in it, whoever was first, also while small files are put together."""
    monkeypatch.setattr(ops_quality, "TIDY_EACH", 3)

    def append(name: str) -> None:
        for number in range(8):
            ops_quality.tell(tmp_path, outcome(judged("passed"), run=f"{name}{number}"))

    threads = [threading.Thread(target=append, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(str(one["run_id"]) for one in rows(tmp_path)) == sorted(f"{n}{at}" for n in "ab" for at in range(8))


def test_a_table_that_cannot_be_opened_is_an_error_in_a_line(tmp_path: Path) -> None:
    """As after a torn commit: it says what to do."""
    log = tmp_path / "ops/quality/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{")

    with pytest.raises(QualityError, match=r"ops\.quality: cannot be written"):
        ops_quality.tell(tmp_path, outcome(judged("passed")))


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[http.client.HTTPConnection]:
    """Give a connection to a server of pages."""
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / "index.html").write_text("<head></head><p>theirs</p>")
    (folder / "deep/page.html").write_text("<head></head><p>é</p>")
    (tmp_path / "secret").write_text("secret")
    results = tmp_path / "results"
    for name, at, met in (("silver.orders", "2026-11-27", 3), ("gold.<x>", "2026-11-28", 2)):
        file = results / name / "2026-11-26" / at / "1.json"
        file.parent.mkdir(parents=True)
        told = {
            "suite_name": name,
            "meta": {
                "run_id": {"run_name": "2026-11-26", "run_time": f"{at}T01:02:03.456+01:00"},
                "verdict": "passed" if met == 3 else "unknown",
            },
            "statistics": {"evaluated_expectations": 3, "successful_expectations": met},
        }  # fmt: skip
        file.write_text(json.dumps(told))
    (results / "torn.json").write_text("{")
    (folder / "link.html").symlink_to(tmp_path / "secret")
    with server(folder, results=results, port=0) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield http.client.HTTPConnection("127.0.0.1", serving.server_port, timeout=30)
        serving.shutdown()


@pytest.mark.parametrize(
    ("method", "path", "host", "status"),
    [
        ("GET", "/index.html", None, 200),
        ("GET", "/", None, 200),
        ("GET", "/deep/page.html", None, 200),
        ("GET", "/deep/", None, 404),
        ("GET", "/deep/%00.html", None, 404),
        ("GET", "/link.html", None, 404),
        ("HEAD", "/", None, 200),
        ("GET", "/../secret", None, 404),
        ("GET", "/index.html", "elsewhere.example:80", 403),
        ("POST", "/index.html", None, 501),
        ("PUT", "/index.html", None, 501),
    ],
)
def test_pages_are_only_read(
    pages: http.client.HTTPConnection, method: str, path: str, host: str | None, status: int
) -> None:
    """Of one folder, and not by a page of another site; the browser may ask nobody else."""
    pages.request(method, path, headers={} if host is None else {"Host": host})
    answer = pages.getresponse()

    assert answer.status == status
    assert b"secret" not in answer.read()
    assert "https:" not in (answer.getheader("Content-Security-Policy") or "https:")


def test_pages_need_nobody_elsewhere(pages: http.client.HTTPConnection) -> None:
    """The index lists all results without scripts, newest first; a page has styles of ours."""
    said = []
    for path in ("/", "/./index.html?x", "/deep/page.html"):
        pages.request("GET", path)
        said.append(pages.getresponse().read().decode())

    assert said[0] == said[1]
    row = r'<tr><td><a href="(.*)">(.*)</a></td><td>(.*)</td><td>(.*)</td><td>(.*)</td><td class="(.*)">'
    day = "2026-11-26"
    assert re.findall(row, said[0]) == [
        (
            f"validations/gold.%3Cx%3E/{day}/2026-11-28/1.html", "gold.&lt;x&gt;", day, "2026-11-28 00:02:03", "2 of 3",
            "unknown",
        ),
        (
            f"validations/silver.orders/{day}/2026-11-27/1.html", "silver.orders", day, "2026-11-27 00:02:03", "3 of 3",
            "passed",
        ),
    ]  # fmt: skip
    assert "<style>" in said[2]
    assert "<p>é</p>" in said[2]


def test_a_suite_is_written_as_it_is_read(tmp_path: Path) -> None:
    """Text that looks like something else stays text, a comment at the beginning stays, nothing wrong is written."""
    path = tmp_path / "daily_orders.yml"
    path.write_text("# sales\nexpectations: []\n")
    values = ["no", "true", "1e5", "1_000", "2026-11-20", "a: b", "null", "x\ny", "é", 1, 0.5, False, None]
    given = (
        Expectation(
            type="expect_column_values_to_be_in_set", kwargs={"column": "day", "value_set": values},
            severity="warning", meta={"why": "it's so, as: agreed"},
        ),
        Expectation(type="expect_table_row_count_to_equal", kwargs={"value": 3}, severity="critical", meta={}),
    )  # fmt: skip

    suites.save(path, given, table="gold.daily_orders", columns=COLUMNS)
    again = suites.load(path, table="gold.daily_orders", columns=COLUMNS).expectations

    assert [(one.type, dict(one.kwargs), one.severity, dict(one.meta)) for one in again] == [
        (one.type, dict(one.kwargs), one.severity, dict(one.meta)) for one in given
    ]
    before = path.read_text()
    assert before.startswith("# sales\n")
    with pytest.raises(DeclarationError, match="there is no column x"):
        suites.save(path, [judged("passed", column="x").expectation], table="gold.daily_orders", columns=COLUMNS)
    assert (path.read_text(), [*tmp_path.iterdir()]) == (before, [path])
