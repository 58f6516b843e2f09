"""Days replayed in Airflow while much else waits, is cancelled or dies; each run tells its rows, and the proof holds.

    .venv/spark/bin/python -m tests.chaos.replays [--pictures docs/pictures]

A stack with Airflow and the tiny project, on free ports and in a scratch folder, with notes coming all the time. A view
and an aggregate were wrong for a week. Their last three days are replayed from the form of Airflow's pages, in a
browser, while 25 other runs wait; then the week, by Airflow's command line: cancelled in the middle, the driver killed
in the middle, and once more. One is replayed every five minutes for the day before. Exit code 1 if a run does not end
well, tells too few rows, or a proof does not hold.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from deltaworks.analyst import connect
from deltaworks.cli import show
from deltaworks.control import Store
from deltaworks.settings import Settings
from tests import browser
from tests.airflow_rest import Airflow
from tests.flows import START
from tests.running_stack import running_stack, wait_until
from tests.stack.test_compute_again import DAYS as AGGREGATE
from tests.stack.test_compute_again import NOTES, known, said, send, tiny, words_of
from tests.tiny_project import Project

VIEW = "gold.words_per_day"
BOTH = (VIEW, AGGREGATE)
WEEK = [f"{START + timedelta(days=day):%Y-%m-%d}" for day in range(7)]
LAST = WEEK[-3:]
EACH = 400
"""Notes of each day."""
OTHERS = 25
SECONDS_MAX = 600.0
_RIGHT, _WRONG = 'F.sum("words")', 'F.sum(F.col("words") + 1)'
_TABLE = '''"""Words per day, as of now."""

from deltaworks.words import Column, Table, view

TABLE = Table(
    app="tiny",
    reads="silver.notes",
    kept_as=view(keys=("day",)),
    columns=(
        Column("day", "date", null=False, doc="Day the notes were written, UTC."),
        Column("words", "bigint", null=False, doc="Their words together."),
    ),
    event_time="day",
    owner="tests",
)
'''
_TRANSFORM = '''"""Notes to words per day."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(notes: DataFrame) -> DataFrame:
    """Count the words of each day."""
    return notes.groupBy(F.to_date("written_at").alias("day")).agg(F.sum("words").alias("words"))


def keys_from(notes: DataFrame) -> DataFrame:
    """The days that a note touches."""
    return notes.select(F.to_date("written_at").alias("day"))
'''


@dataclass(frozen=True, kw_only=True)
class Step:
    """What was done, and how it ended."""

    step: str
    seconds: float
    told: str


class Scene:
    """The app at work, with notes of the last day coming all the time, and its Airflow."""

    def __init__(self, settings: Settings, project: Project, pictures: Path | None = None) -> None:
        """Notes of each day are sent, under wrong code. `pictures`: the folder for those of Airflow's pages."""
        self.settings, self.project, self.pictures = settings, project, pictures
        self.airflow = Airflow(settings)
        self._sent, self._over = 0, threading.Event()

    def begin(self) -> None:
        """Send a week; wait until it is there; mend the code; then notes come all the time."""
        said(self.settings, "app", "start", "tiny")
        for day in range(len(WEEK)):
            self._send(EACH, day)
        wait_until(lambda: len(known(self.settings)) == self._sent, what="the week", seconds_max=SECONDS_MAX)
        for table in BOTH:
            self.project.edit(f"tables/{table.replace('.', '/')}/transform.py", _WRONG, _RIGHT)
        said(self.settings, "app", "restart", "tiny")
        dags = [f"/api/v2/dags/replay__{table}" for table in (NOTES, *BOTH)]
        wait_until(
            lambda: all(self.airflow.ask(dag)[0] == 200 for dag in dags), what="the DAGs are there",
            seconds_max=SECONDS_MAX,
        )  # fmt: skip
        threading.Thread(target=self._go_on, daemon=True).start()

    def end(self) -> None:
        """No more notes."""
        self._over.set()

    def words(self, table: str, days: Sequence[str]) -> dict[str, int]:
        """What a table says of days."""
        with connect(self.settings.lake) as lake:
            rows = lake.sql(f"select day::varchar, words from {table}").rows
        return {str(day): int(str(words)) for day, words in rows if str(day) in days}

    def backfill(self, table: str, days: Sequence[str], runs: int) -> int:
        """Order them by REST; the backfill's number."""
        given = {
            "dag_id": f"replay__{table}", "from_date": f"{days[0]}T00:00:00Z", "to_date": f"{days[-1]}T00:00:00Z",
            "max_active_runs": runs, "reprocess_behavior": "completed",
        }  # fmt: skip
        status, answer = self.airflow.ask("/api/v2/backfills", given)
        assert status == 200, answer
        return int(answer["id"])

    def backfill_by_form(self, pages: webdriver.Chrome, table: str, days: Sequence[str]) -> int:
        """Order them as a person does, from the form behind *Trigger*; the backfill's number."""
        dag = f"replay__{table}"
        known = {one["id"] for one in self.backfills(dag)}
        pages.get(f"{self.settings.airflow_url}/dags/{dag}")
        _click(pages, "//button[normalize-space()='Trigger']")
        _click(pages, "//input[@value='backfill']/ancestor::label")
        for field, day in (("From", days[0]), ("To", days[-1])):
            _click(pages, f"//label[normalize-space()='{field}']/following-sibling::*[@data-testid='datetime-input']")
            _fill(pages, "YYYY/MM/DD", day.replace("-", "/"))
            _fill(pages, "HH:mm", "00:00")
            _click(pages, "//p[normalize-space()='Date Range']")  # the calendar closes
        _click(pages, "//input[@value='completed']/ancestor::label")
        _click(pages, "//input[@name='max_active_runs']")
        pages.switch_to.active_element.send_keys(Keys.CONTROL, "a")
        pages.switch_to.active_element.send_keys(str(len(days)))
        browser.until(pages, lambda: f"{len(days)} runs will be triggered" in browser.text_of(pages))
        if table == VIEW:
            self.picture(pages, "airflow-backfill")
        _click(pages, "//button[normalize-space()='Run Backfill']")
        wait_until(lambda: len(self.backfills(dag)) > len(known), what=f"the backfill of {table}")
        (mine,) = {one["id"] for one in self.backfills(dag)} - known
        return int(mine)

    def picture(self, pages: webdriver.Chrome, name: str) -> None:
        """Take one of the page as it is, if pictures are wanted."""
        if self.pictures is not None:
            assert pages.save_screenshot(str(self.pictures / f"{name}.png"))

    def backfills(self, dag: str) -> list[dict[str, Any]]:
        """All backfills of a DAG."""
        status, answer = self.airflow.ask(f"/api/v2/backfills?dag_id={dag}&limit=100")
        assert status == 200, answer
        return list(answer["backfills"])

    def states(self, backfill: int) -> dict[str, str]:
        """State of each of its runs, by name, in the order of their days; REST does not say which are its."""
        asked = "select run_id, state from dag_run where backfill_id = %s order by run_after"
        with psycopg.connect(self.settings.dsn("airflow")) as connection:
            return {str(run): str(state) for run, state in connection.execute(asked, [backfill])}

    def results(self, table: str, runs: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """What each run told, by day."""
        found = [self.airflow.result(f"replay__{table}", run) for run in runs]
        return {str(one["from"])[:10]: one for one in found}

    def proved(self, *tables: str) -> str:
        """That what was streamed and replayed is what a batch makes of bronze."""
        told = [json.loads(said(self.settings, "prove", one, "--keys-min", "7", "--json")) for one in tables]
        assert [one[0]["verdict"] for one in told] == ["proved"] * len(tables), told
        return "proved: " + ", ".join(tables)

    def _send(self, count: int, day: int) -> None:
        send(self.settings, self._sent, count, day=day)
        self._sent += count

    def _go_on(self) -> None:
        while not self._over.wait(2):
            self._send(4, len(WEEK) - 1)


def _click(pages: webdriver.Chrome, path: str) -> None:
    """Wait for what an XPath finds, and click it."""

    def clicked() -> bool:  # what is found may be covered for a moment
        found = pages.find_elements(By.XPATH, path)[-1]
        pages.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()
        return True

    browser.until(pages, clicked)


def _fill(pages: webdriver.Chrome, form: str, value: str) -> None:
    """Type into the field that is to be filled in this form."""
    path = f"//div[@role='dialog'][@data-state='open']//input[@placeholder='{form}']"
    _click(pages, path)
    pages.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    pages.switch_to.active_element.send_keys(value)


def three_days_while_others_wait(scene: Scene) -> str:
    """25 days of the notes are ordered first, then three of the view and of the aggregate, from the form."""
    first = datetime.fromisoformat(WEEK[-1]) - timedelta(days=OTHERS - 1)
    others = scene.backfill(NOTES, [f"{first:%Y-%m-%d}", WEEK[-1]], OTHERS)
    with browser.logged_in(scene.settings, size="1400,1300") as pages:
        mine = {table: scene.backfill_by_form(pages, table, LAST) for table in BOTH}
    wait_until(
        lambda: all([*scene.states(one).values()] == ["success"] * len(LAST) for table, one in mine.items()),
        what="three days of both", seconds_max=SECONDS_MAX,
    )  # fmt: skip
    waiting = [*scene.states(others).values()]
    told = {table: scene.results(table, scene.states(one)) for table, one in mine.items()}
    assert all(sorted(days) == LAST for days in told.values()), told
    # the stream has computed the view's last day anew already, as notes of that day come all the time
    every = [one for days in told.values() for one in days.values()]
    assert all(one["rows_written"] + one["rows_unchanged"] == 1 for one in every), told
    assert all(days[day]["rows_written"] == 1 for days in told.values() for day in LAST[:-1]), told
    right = sum(words_of(number) for number in range(EACH))
    assert all(scene.words(table, LAST[:-1]) == dict.fromkeys(LAST[:-1], right) for table in BOTH)
    assert all(scene.words(table, WEEK[:1]) == {WEEK[0]: right + EACH} for table in BOTH), "other days are as they were"
    wait_until(
        lambda: [*scene.states(others).values()] == ["success"] * OTHERS,
        what="the others", seconds_max=SECONDS_MAX,
    )  # fmt: skip
    if scene.pictures is not None:
        _take_pictures(scene, next(iter(scene.states(mine[VIEW]))))
    return f"of the {OTHERS} others {waiting.count('success')} were through before"


def _take_pictures(scene: Scene, run: str) -> None:
    """Take pictures of the runs side by side, and of what one of them told."""
    there = f"{scene.settings.airflow_url}/dags/replay__{VIEW}"
    with browser.logged_in(scene.settings, size="1500,860") as pages:
        pages.get(f"{there}/runs")
        drawn = "//a[starts-with(@id, 'grid-backfill')]"
        browser.until(pages, lambda: len(pages.find_elements(By.XPATH, drawn)) == len(LAST))
        browser.until(pages, lambda: browser.text_of(pages).count("Success") == len(LAST))
        scene.picture(pages, "airflow-replays")
        pages.get(f"{there}/runs/{run}/tasks/replay")
        browser.until(pages, lambda: "rows_written" in browser.text_of(pages))
        scene.picture(pages, "airflow-replay-log")


def a_week_cancelled(scene: Scene) -> str:
    """By Airflow's command line, cancelled once the first days are being computed: nothing is half done."""
    before = {table: scene.words(table, WEEK[:4]) for table in BOTH}
    number = _by_command_line(scene, VIEW, runs=2)
    wait_until(lambda: _begun(scene, number), what="days are being computed", seconds_max=SECONDS_MAX)
    status, answer = scene.airflow.ask(f"/api/v2/backfills/{number}/cancel", {}, method="PUT")
    assert status == 200, answer
    wait_until(
        lambda: {*scene.states(number).values()} <= {"success", "failed"}, what="it is over",
        seconds_max=SECONDS_MAX,
    )  # fmt: skip
    states = [*scene.states(number).values()]
    after = scene.words(VIEW, WEEK[:4])
    right = sum(words_of(one) for one in range(EACH))
    assert all(after[day] in (right, before[VIEW][day]) for day in WEEK[:4]), after
    assert states.count("failed") > 0, "it was over before it was cancelled"
    return f"{states.count('success')} days replayed, {states.count('failed')} not"


def a_week_with_the_driver_killed(scene: Scene) -> str:
    """The same once more, and the aggregate's; the driver dies in the midst."""
    numbers = {table: _by_command_line(scene, table) for table in BOTH}
    wait_until(lambda: _begun(scene, numbers[VIEW]), what="days are computed", seconds_max=SECONDS_MAX)
    with Store(scene.settings.control_dsn()) as store:
        wait_until(lambda: bool(store.commands(kind="recompute", state="running")), what="it has begun")
        lease = store.lease("tiny")
    assert lease is not None
    os.kill(lease.pid, signal.SIGKILL)
    wait_until(
        lambda: all([*scene.states(one).values()] == ["success"] * 7 for table, one in numbers.items()),
        what="the week of both", seconds_max=SECONDS_MAX,
    )  # fmt: skip
    told = {table: scene.results(table, scene.states(one)) for table, one in numbers.items()}
    assert all(sorted(days) == WEEK for days in told.values()), told
    counts = {
        table: sum(one["rows_written"] + one["rows_unchanged"] for one in days.values()) for table, days in told.items()
    }
    assert counts == dict.fromkeys(BOTH, 7), told
    return scene.proved(*BOTH)


def every_five_minutes(scene: Scene) -> str:
    """The scheduled one has run, for yesterday, which has no notes."""
    dag = f"replay__{AGGREGATE}"

    def scheduled() -> dict[str, str]:
        return {run: state for run, state in scene.airflow.runs(dag).items() if run.startswith("scheduled")}

    wait_until(lambda: "success" in scheduled().values(), what="the scheduled one", seconds_max=SECONDS_MAX)
    run = next(run for run, state in scheduled().items() if state == "success")
    told = scene.airflow.result(dag, run)
    assert str(told["from"])[:10] in {f"{datetime.now(UTC) - timedelta(days=back):%Y-%m-%d}" for back in (1, 2)}, told
    return f"{run} told {told['rows_written']} rows of {str(told['from'])[:10]}"


def _by_command_line(scene: Scene, table: str, *, runs: int = len(WEEK)) -> int:
    """Have Airflow's command line order the week; the backfill's number."""
    dag = f"replay__{table}"
    said(
        scene.settings, "airflow", "backfill", "create", "--dag-id", dag, "--from-date", WEEK[0],
        "--to-date", WEEK[-1], "--reprocess-behavior", "completed", "--max-active-runs", str(runs),
    )  # fmt: skip
    return max(int(one["id"]) for one in scene.backfills(dag))


def _begun(scene: Scene, number: int) -> bool:
    """Whether some of its runs are at it."""
    return "running" in scene.states(number).values()


STEPS = (three_days_while_others_wait, a_week_cancelled, a_week_with_the_driver_killed, every_five_minutes)


@contextmanager
def at_work(pictures: Path | None = None) -> Iterator[Scene]:
    """The stack with all that."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-replays-") as folder:
        project = tiny(Path(folder) / "project")
        project.edit("expectations/silver/notes.yml", "min_value: 0, max_value: 3}", "min_value: 0}")
        project.write("tables/gold/words_per_day/table.py", _TABLE)
        project.write("tables/gold/words_per_day/transform.py", _TRANSFORM)
        project.write("expectations/gold/words_per_day.yml", "waived: its rows are counted here\n")
        for table in BOTH:
            project.edit(f"tables/{table.replace('.', '/')}/transform.py", _RIGHT, _WRONG)
        file = project.folder / "deltaworks.toml"
        file.write_text(f'{file.read_text()}\n[replays]\n"{AGGREGATE}" = "*/5 * * * *"\n')
        project.take_dags("streams", "replay")
        with running_stack(parts=("control", "kafka", "airflow"), project=project.folder) as settings:
            scene = Scene(settings, project, pictures)
            try:
                scene.begin()
                yield scene
            finally:
                scene.end()


def main(arguments: Sequence[str]) -> int:
    """Print a line for each step; the exit code is that of the first that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.replays", description=__doc__)
    parser.add_argument("--pictures", type=Path, help="take some of Airflow's pages, into this folder")
    given = parser.parse_args(arguments)
    if given.pictures is not None:
        given.pictures.mkdir(parents=True, exist_ok=True)
    with at_work(given.pictures) as scene:
        for step in STEPS:
            began = time.monotonic()
            try:
                told = step(scene)
            except AssertionError as error:
                show.err.print(f"{step.__name__}: {error}", markup=False)
                return 1
            show.out.print(str(Step(step=step.__name__, seconds=round(time.monotonic() - began, 1), told=told)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
