import asyncio
import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import AssetOrTimeSchedule
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import TimeRestriction
from airflow.triggers.base import TaskFailedEvent, TaskSuccessEvent

from deltaworks.control import Store
from deltaworks.settings import ROOT, Settings
from deltaworks.supervise import assets, validate
from deltaworks.supervise.assets import ClosedPartitionStream
from deltaworks.supervise.judging import Wanted
from deltaworks.supervise.validate import DaysToJudge, DayToJudgeTrigger, ValidateTrigger
from tests.unit.airflow.triggers import ended, of_run

TABLE = "gold.daily_orders"
OUTCOME = {
    "table": TABLE, "version": 7, "days": [], "verdict": "passed", "reason": "", "pages": "index.html",
    "expectations": [
        {"expectation": "expect_x(day)", "severity": "critical", "where": "at rest", "day": None, "verdict": "passed"},
        {
            "expectation": "expect_x(day)", "severity": "critical", "where": "in the stream", "day": None,
            "verdict": "failed",
        },
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses are for Airflow's scheduler, which is not here."""
    monkeypatch.setattr(assets, "APART_SECONDS", 0.05)
    monkeypatch.setattr(assets, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(validate, "QUIET_SECONDS", 0.0)


@pytest.fixture
def holding(settings: Settings) -> Settings:
    """Give the project with a suite that holds a table's days back."""
    folder = settings.project / "expectations"
    folder.unlink()
    shutil.copytree(ROOT / "expectations", folder)
    suite = folder / "gold" / "daily_orders.yml"
    suite.write_text(suite.read_text().replace("why: amounts are not negative", "then: hold"))
    return settings


@pytest.mark.usefixtures("settings")
def test_each_table_with_expectations_is_judged_at_a_minute_of_its_own() -> None:
    """And a gold table when a day of it closes, too; what the scheduler keeps of the DAG can be made of each."""
    bag = parse()

    assert bag.import_errors == {}
    tables = {dag_id.removeprefix("validate__") for dag_id in bag.dags}
    assert {TABLE, "silver.orders", "silver.page_views"} <= tables
    assert "bronze.shop_changes" not in tables
    for dag in bag.dags.values():
        assert DagSerialization.to_dict(dag)
        assert not dag.catchup
        assert "deltaworks quality run" in (dag.doc_md or "")
    daily = bag.dags[f"validate__{TABLE}"]
    assert isinstance(daily.timetable, AssetOrTimeSchedule)
    assert not isinstance(bag.dags["validate__silver.orders"].timetable, AssetOrTimeSchedule)
    assert "held back" not in (daily.doc_md or "")


@pytest.mark.usefixtures("settings")
def test_the_first_night_is_the_next_one() -> None:
    """Else each table would be judged at the first start of all, when there is none yet."""
    at_once = TimeRestriction(earliest=None, latest=None, catchup=False)

    for dag in parse().dags.values():
        kept = DagSerialization.from_dict(DagSerialization.to_dict(dag))  # as the scheduler has it
        first = kept.timetable.next_dagrun_info(last_automated_data_interval=None, restriction=at_once)

        assert kept.start_date is None
        assert first is not None
        assert first.run_after > datetime.now(UTC)


@pytest.mark.usefixtures("holding")
def test_a_suite_that_holds_days_back_says_so_on_its_page() -> None:
    """And is told of a day by an asset of its own."""
    daily = parse().dags[f"validate__{TABLE}"]

    assert "held back" in (daily.doc_md or "")
    assert f"{TABLE} to judge" in str(DagSerialization.to_dict(daily))


def test_a_held_day_goes_out_once_it_passes_or_is_released(store: Store, holding: Settings) -> None:
    """Not while nobody has judged it, nor while it failed, nor while nobody could say."""
    for day in ("2026-11-19", "2026-11-20", "2026-11-21"):
        store.close_partition(TABLE, day, 3)

    before = given(ClosedPartitionStream(table=TABLE, project=holding.project))
    store.judge_partition(TABLE, "2026-11-19", "failed", reason="x")
    store.judge_partition(TABLE, "2026-11-20", "unknown", reason="y")
    judged = given(ClosedPartitionStream(table=TABLE, project=holding.project))
    store.judge_partition(TABLE, "2026-11-20", "passed", reason="")
    passed = given(ClosedPartitionStream(table=TABLE, project=holding.project))
    store.judge_partition(TABLE, "2026-11-20", "released", reason="ada: known")

    assert (before, judged, passed) == (None, None, "2026-11-20")
    assert [one.partition for one in store.held_partitions()] == ["2026-11-19"]


def test_days_of_other_tables_wait_for_nobody(store: Store, settings: Settings) -> None:
    """A suite without `hold` holds nothing back."""
    store.close_partition(TABLE, "2026-11-19", 3)

    assert given(ClosedPartitionStream(table=TABLE, project=settings.project)) == "2026-11-19"


def test_a_day_is_given_to_its_validation_before_it_is_judged(store: Store, holding: Settings) -> None:
    """Once, whatever comes of it; a day that all know of needs none."""
    store.close_partition(TABLE, "2026-11-19", 3)
    store.announce_partition(TABLE, "2026-11-19")
    store.close_partition(TABLE, "2026-11-20", 4)

    first = given(DaysToJudge(table=TABLE, project=holding.project))
    store.ask_partition(TABLE, "2026-11-20")
    held = [(one.partition, one.verdict) for one in store.held_partitions()]

    assert first == "2026-11-20"
    assert held == [("2026-11-20", None)], "nobody has judged it"
    assert given(DaysToJudge(table=TABLE, project=holding.project)) is None


@pytest.mark.parametrize(
    ("verdict", "event"), [("passed", TaskSuccessEvent), ("failed", TaskFailedEvent), ("unknown", TaskFailedEvent)]
)
def test_a_run_ends_by_its_verdict(
    settings: Settings, verdict: str, event: type[TaskSuccessEvent | TaskFailedEvent]
) -> None:
    """What nobody could say is no success; each verdict is in the return value. What the stream set aside is none."""
    outcome = {**OUTCOME, "verdict": verdict}
    python_that_says(settings, json.dumps(outcome))

    found = ended(trigger(settings, "2026-11-20"))

    assert isinstance(found, event)
    assert found.xcoms == {"return_value": outcome}


def test_the_command_is_that_of_a_person(settings: Settings) -> None:
    """With the days that the run is for, or what is judged each night."""
    days = Wanted(table=TABLE, days=("2026-11-20", "2026-11-21")).command(settings)
    night = Wanted(table=TABLE, night=True).command(settings)

    assert days[5:] == ["quality", "run", TABLE, "--json", "--day", "2026-11-20", "--day", "2026-11-21"]
    assert night[5:] == ["quality", "run", TABLE, "--json", "--night"]


def test_a_run_that_says_nothing_has_failed(settings: Settings) -> None:
    """As when there is no table: its error is in the task's log."""
    python_that_says(settings, "")

    found = ended(trigger(settings))

    assert isinstance(found, TaskFailedEvent)
    assert found.xcoms is None


def test_triggers_are_made_again_from_what_they_say_of_themselves(settings: Settings) -> None:
    """Airflow stores them and makes them anew in another process."""
    for made in (trigger(settings, "2026-11-20"), DayToJudgeTrigger(table=TABLE, project="/p")):
        path, kwargs = made.serialize()

        assert path == f"deltaworks.supervise.validate.{type(made).__name__}"
        assert type(made)(**kwargs).serialize() == (path, kwargs)


def trigger(settings: Settings, *days: str, by_schedule: bool = False) -> ValidateTrigger:
    """The trigger of a run for these days."""
    made = ValidateTrigger(
        app="shop", table=TABLE, project=str(settings.project), days=days, by_schedule=by_schedule,
        deferred_at=time.time(),
    )  # fmt: skip
    return of_run(made, f"validate__{TABLE}")


def python_that_says(settings: Settings, text: str) -> None:
    """Let Spark's Python, which would take a minute, say this and end."""
    said = settings.project / "said.json"
    said.write_text(text)
    Path(settings.spark_python).write_text(f"#!/bin/sh\ncat {said}\n")


def given(stream: ClosedPartitionStream) -> str | None:
    """The first partition that a stream gives; None if it gives none for a while."""

    async def first() -> str | None:
        try:
            async with asyncio.timeout(1):
                raw, _ = await anext(stream.open_stream())
        except TimeoutError:
            return None
        finally:
            await stream.aclose()
        return str(raw["partition"])

    return asyncio.run(first())


def parse() -> DagBag:
    """Parse the DAG file as Airflow does."""
    return DagBag(dag_folder=ROOT / "dags" / "validate.py")
