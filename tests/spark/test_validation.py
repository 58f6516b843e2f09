"""Suites judged by Great Expectations itself, over a pinned version of a real small lake."""

import datetime as dt
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.engine.datasets import dataset_of
from deltaworks.errors import LakeError
from deltaworks.quality.verdict import Outcome
from deltaworks.settings import ROOT, Settings
from deltaworks.validation import ops_quality
from deltaworks.validation.run import validate
from deltaworks.validation.site import KEEP, clear
from tests.members import SECRET, lake_of_members, members
from tests.tiny_project import Project

SUITE = """expectations:
  - {type: expect_column_values_to_be_unique, kwargs: {column: member_id}, severity: critical}
  - {type: expect_column_values_to_be_in_set, kwargs: {column: city, value_set: [Bern, Basel]}, severity: critical}
  - {type: expect_column_values_to_be_in_set, kwargs: {column: city, mostly: 0.2, value_set: [Bern]}, severity: warning}
  - {type: expect_column_most_common_value_to_be_in_set, kwargs: {column: city, value_set: [Bern]}, severity: warning}
  - {type: expect_column_max_to_be_between, kwargs: {column: dues, max_value: 1}, severity: warning}
  - {type: expect_table_row_count_to_be_between, kwargs: {min_value: 3}, severity: critical}
  - {type: expect_table_column_count_to_equal, kwargs: {value: 5}, severity: critical}
  - {type: expect_column_mean_to_be_between, kwargs: {column: dues, max_value: 2}, severity: critical}
  - type: unexpected_rows_expectation
    kwargs: {unexpected_rows_query: "select * from {batch} where cast(city as int) > 1"}
    severity: warning
"""


@pytest.fixture
def lake(tmp_path: Path) -> Settings:
    """Give the tiny project, with a suite of all sorts and one table of it in the lake."""
    return lake_of_members(tmp_path, SUITE)


@pytest.fixture
def judge(spark: SparkSession) -> Callable[[Settings], Outcome]:
    """Give what judges the members of a lake."""
    return lambda settings: validate(spark, settings, catalog.load(settings.project), "silver.members")


def test_whole_suite_is_judged_over_one_version(lake: Settings, judge: Callable[[Settings], Outcome]) -> None:
    """Rows, counts, the most common: each has its verdict; what cannot be computed is unknown, never passed."""
    outcome = judge(lake)

    found = [one.verdict for one in outcome.judged if one.where == "at rest"]
    assert found == ["passed", "failed", "passed", "passed", "failed", "passed", "passed", "passed", "unknown"]
    assert (outcome.verdict, outcome.version) == ("failed", 0)
    assert outcome.reason == "expect_column_values_to_be_in_set(city) failed"
    result = json.loads(outcome.judged[1].result)
    assert result["result"]["unexpected_count"] == 1
    assert result["expectation_config"]["kwargs"]["value_set"] == ["Bern", "Basel"]


def test_another_version_is_judged_anew(lake: Settings, judge: Callable[[Settings], Outcome]) -> None:
    """Mended rows pass; the version is told with the verdict."""
    before = judge(lake)
    write_deltalake(lake.lake / "silver/members", members(last="Basel"), mode="overwrite")

    after = judge(lake)

    assert (before.version, before.judged[1].verdict) == (0, "failed")
    assert (after.version, after.judged[1].verdict) == (1, "passed")


def test_nothing_that_is_kept_quotes_a_row(lake: Settings, judge: Callable[[Settings], Outcome]) -> None:
    """Neither results nor pages, not even of what raised an error, have a value that only a row has."""
    outcome = judge(lake)

    files = [path for path in lake.quality.rglob("*") if path.is_file()]
    pages = [path for path in files if "validations" in path.parts and path.suffix == ".html"]
    assert pages
    assert any(path.suffix == ".json" or "results" in path.parts for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in "".join(one.result for one in outcome.judged)
    assert "CAST_INVALID_INPUT" in next(one.result for one in outcome.judged if one.verdict == "unknown")


def test_nobody_is_told_over_the_network(
    lake: Settings, judge: Callable[[Settings], Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Great Expectations asks no other machine: only the JVM beside it is spoken to."""
    real, asked = socket.socket.connect, list[object]()

    def connect(self: socket.socket, address: object) -> None:
        asked.append(address)
        real(self, address)  # type: ignore[arg-type]  # whatever it was given

    monkeypatch.setattr(socket.socket, "connect", connect)

    judge(lake)

    assert asked
    assert {address[0] for address in asked if isinstance(address, tuple)} <= {"127.0.0.1", "::1"}


def test_a_table_without_rows_is_not_judged(lake: Settings, spark: SparkSession) -> None:
    """Nothing is there, so nothing is said."""
    with pytest.raises(LakeError, match="has no rows yet"):
        validate(spark, lake, catalog.load(lake.project), "gold.notes_per_day")


def test_many_rows_are_read_by_spark_as_of_the_version(lake: Settings, judge: Callable[[Settings], Outcome]) -> None:
    """Above the bound of what goes by Arrow the verdicts are the same."""
    few, many = judge(lake), judge(lake.changed(arrow_bytes_max=1))

    assert [one.verdict for one in few.judged] == [one.verdict for one in many.judged]


def test_a_day_that_has_closed_is_judged_by_its_own_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Where a suite says `when: day`; the rest over the whole table. By hand it is the newest day that is through."""
    project = Project(tmp_path / "project")
    project.write(
        "expectations/gold/notes_per_day.yml",
        """expectations:
  - {type: expect_table_row_count_to_equal, kwargs: {value: 3}, severity: critical}
  - {type: expect_table_row_count_to_equal, kwargs: {value: 1}, severity: critical, meta: {when: day}}
  - {type: expect_column_sum_to_be_between, kwargs: {column: notes, max_value: 5}, severity: warning, meta: {when: day}}
  - type: expect_column_sum_to_be_between
    kwargs: {column: notes, max_value: 99}
    severity: warning
    meta: {when: schedule}
""",
    )
    settings = Settings.load(project.folder, environment={}, data=tmp_path / "data")
    days = [dt.date(2026, 11, 19 + day) for day in range(3)]
    last = pa.array([dt.datetime(2026, 11, 20, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC"))
    rows = {
        "day": days,
        "notes": [5, 6, 7],
        "words": [5, 6, 7],
        "shortest": pa.array([5] * 3, pa.int32()),
        "last": last,
    }
    write_deltalake(settings.lake / "gold/notes_per_day", pa.table(rows))
    found = catalog.load(settings.project)

    closed = validate(spark, settings, found, "gold.notes_per_day", days=("2026-11-19", "2026-11-20"), occasion="day")
    by_hand = validate(spark, settings, found, "gold.notes_per_day")

    assert [(one.day, one.verdict) for one in closed.judged] == [
        (None, "passed"), ("2026-11-19", "passed"), ("2026-11-19", "passed"), ("2026-11-20", "passed"),
        ("2026-11-20", "failed"),
    ]  # fmt: skip
    assert [(one.day, one.verdict) for one in by_hand.judged] == [
        (None, "passed"), (None, "passed"), ("2026-11-20", "passed"), ("2026-11-20", "failed"),
    ]  # fmt: skip
    observed = [json.loads(one.result)["result"].get("observed_value") for one in by_hand.judged]
    assert observed == [3, 18, 1, None], "a day may be one row, whose value its sum would be"
    ops_quality.tell(settings.lake, closed)
    told = dataset_of(deltalake.DeltaTable(settings.lake / "ops/quality")).to_table()["day"].to_pylist()
    assert sorted(told) == [days[0]] * 3 + [days[1]] * 3


def test_old_results_and_pages_go(lake: Settings, judge: Callable[[Settings], Outcome]) -> None:
    """So the folder does not grow for ever; the rows of ops.quality stay."""
    judge(lake)

    now = dt.datetime.now(dt.UTC)
    assert clear(lake, now=now + KEEP / 2) == 0
    assert clear(lake, now=now + KEEP * 2) == 4  # at rest, and in the stream


def test_by_hand_it_tells_and_keeps(lake: Settings) -> None:
    """`deltaworks quality run` in its own process: exit code 1, one line of JSON, rows in ops.quality."""
    call = [sys.executable, "-m", "deltaworks.cli", "--project", str(lake.project), "quality", "run", "silver.members"]

    ran = subprocess.run(
        [*call, "--json"], cwd=ROOT, env={**lake.inherited()}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip

    assert ran.returncode == 1, ran.stderr
    said = json.loads(ran.stdout)
    assert (said["verdict"], said["version"], Path(said["pages"]).is_file()) == ("failed", 0, True)
    assert said["expectations"][-1] == {
        "expectation": "expect_column_values_to_be_in_set(city)", "severity": "critical", "where": "in the stream",
        "day": None, "verdict": "passed",
    }  # fmt: skip
    assert SECRET not in ran.stdout + ran.stderr
    rows = dataset_of(deltalake.DeltaTable(lake.lake / "ops/quality")).to_table()
    assert rows.schema.names == ops_quality.SCHEMA.names
    assert rows["judged"].to_pylist() == ["at rest"] * 9 + ["in the stream"]
    assert {*rows["run_id"].to_pylist()} == {said["run_id"]}
    assert {*rows["day"].to_pylist()} == {None}
