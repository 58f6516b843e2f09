"""What a validation finds unmet reaches the table's owner by the control store, and leaves it again."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from deltaworks import catalog
from deltaworks.catalog import Catalog
from deltaworks.cli import quality
from deltaworks.engine.broker import Edge
from deltaworks.engine.driver import Driver
from deltaworks.quality.verdict import Judged, Outcome, Verdict
from deltaworks.settings import Settings
from tests.flows import Log, take_arrow
from tests.scratch_postgres import ScratchPostgres
from tests.spark.test_suspended import note
from tests.tiny_project import Project
from tests.unit.launching import scratch_project

NOTES = "silver.notes"
SUITE = "expectations/silver/notes.yml"
MEAN = """expectations:
  - type: expect_column_mean_to_be_between
    kwargs: {{column: words, max_value: {most}}}
    severity: critical
    meta: {{then: {then}}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a copy of the tiny project, whose notes are suspended by their mean."""
    made = Project(tmp_path / "tiny")
    made.write(SUITE, MEAN.format(most=1000, then="suspend"))
    return made


@pytest.fixture
def settings(postgres: ScratchPostgres, tmp_path: Path, project: Project) -> Iterator[Settings]:
    """Give its settings, with a control store of its own."""
    with scratch_project(postgres.dsn, postgres.port, tmp_path) as found:
        yield found.changed(project=project.folder)


def judge(settings: Settings, found: Catalog, verdict: Verdict) -> None:
    """As `quality run` does once Great Expectations has judged."""
    (one,) = found.suite(NOTES).expectations
    outcome = Outcome(
        run_id="r", judged_at=dt.datetime.now(dt.UTC), table=NOTES, version=1, days=(),
        judged=[Judged(expectation=one, verdict=verdict, result="{}")],
    )  # fmt: skip
    quality._judge_table(settings, found, outcome)


def suspended(settings: Settings) -> dict[str, str]:
    """What is suspended, and why, once the next owner has taken a note."""
    driver = Driver(app="tiny", settings=settings)
    with driver.store as store:
        store.declare_apps(["tiny"])
        driver.ownership.take()
        flow, log = driver._open(), Log()
        driver._forget_unmet()
        driver._learn_unmet()
        flow.begin({topic: {"0": Edge(0, 10**9), "1": Edge(0, 10**9)} for topic in flow.topics}, broker=None)
        log.send([note(1)])
        take_arrow(flow, log.batch(), above=False)
        flow.take_slice(NOTES, None)
        driver.ownership.give_back()
    return {name: one.error for name, one in flow.suspended.tables.items()}


@pytest.mark.parametrize("verdict", ["failed", "unknown"])
def test_an_owner_learns_what_a_validation_found(settings: Settings, verdict: Verdict) -> None:
    """When it starts, before it takes anything."""
    judge(settings, catalog.load(settings.project), verdict)

    assert suspended(settings) == {
        NOTES: f"expect_column_mean_to_be_between(words) {verdict}."
        ' Mend it, and then run "deltaworks quality run silver.notes".'
    }


def test_what_is_met_lets_the_table_go_on(settings: Settings) -> None:
    """By the next validation."""
    found = catalog.load(settings.project)
    judge(settings, found, "failed")
    judge(settings, found, "passed")

    assert suspended(settings) == {}


@pytest.mark.parametrize(("most", "then"), [(2000, "suspend"), (1000, "tell")])
def test_an_expectation_that_was_changed_suspends_nothing(
    settings: Settings, project: Project, most: int, then: str
) -> None:
    """Also when it is as it was again: the verdict of then is forgotten."""
    judge(settings, catalog.load(settings.project), "failed")
    before = (project.folder / SUITE).read_text()
    project.write(SUITE, MEAN.format(most=most, then=then))
    changed = suspended(settings)
    project.write(SUITE, before)

    assert changed == suspended(settings) == {}


def test_what_is_suspended_by_validations_is_listed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the days that are held back."""
    monkeypatch.setattr(quality, "settings", lambda: settings)
    judge(settings, catalog.load(settings.project), "failed")
    main = typer.Typer()
    quality.register(main)

    ran = CliRunner().invoke(main, ["quality", "held", "--json"])

    assert ran.exit_code == 1
    assert json.loads(ran.stdout) == [
        {
            "table": NOTES, "day": "suspended", "verdict": "unmet",
            "why": "expect_column_mean_to_be_between(words) failed",
        }
    ]  # fmt: skip
