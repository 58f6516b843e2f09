"""Days replayed in Airflow while much else waits, is cancelled or dies; each run tells its rows, and the proof holds.

    .venv/spark/bin/python -m tests.chaos.replays

A stack with Airflow and the tiny project, on free ports and in a scratch folder, with notes coming all the time. A view
and an aggregate were wrong for a week. Their last three days are replayed while 25 other runs wait; then the week, by
Airflow's command line: cancelled in the middle, the driver killed in the middle, and once more. One is replayed every
five minutes for the day before. Exit code 1 if a run does not end well, tells too few rows, or a proof does not hold.
"""

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

from deltaworks.analyst import connect
from deltaworks.cli import show
from deltaworks.control import Store
from deltaworks.settings import Settings
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

    def __init__(self, settings: Settings, project: Project) -> None:
        """Notes of each day are sent, under wrong code."""
        self.settings, self.project = settings, project
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

    def states(self, table: str, backfill: int) -> dict[str, str]:
        """State of each of its runs, by name."""
        status, answer = self.airflow.ask(f"/api/v2/dags/replay__{table}/dagRuns?limit=200&order_by=-run_after")
        assert status == 200, answer
        return {one["dag_run_id"]: one["state"] for one in answer["dag_runs"] if _of(one) == backfill}

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


def _of(run: Mapping[str, Any]) -> int | None:
    """The backfill that a run is of."""
    found = run.get("backfill_id")
    return None if found is None else int(found)


def three_days_while_others_wait(scene: Scene) -> str:
    """25 days of the notes are ordered first, then three of the view and of the aggregate."""
    first = datetime.fromisoformat(WEEK[-1]) - timedelta(days=OTHERS - 1)
    others = scene.backfill(NOTES, [f"{first:%Y-%m-%d}", WEEK[-1]], OTHERS)
    mine = {table: scene.backfill(table, LAST, len(LAST)) for table in BOTH}
    wait_until(
        lambda: all([*scene.states(table, one).values()] == ["success"] * len(LAST) for table, one in mine.items()),
        what="three days of both", seconds_max=SECONDS_MAX,
    )  # fmt: skip
    waiting = [*scene.states(NOTES, others).values()]
    told = {table: scene.results(table, scene.states(table, one)) for table, one in mine.items()}
    assert all(sorted(days) == LAST for days in told.values()), told
    assert all(one["rows_written"] == 1 for days in told.values() for one in days.values()), told
    right = sum(words_of(number) for number in range(EACH))
    assert all(scene.words(table, LAST[:-1]) == dict.fromkeys(LAST[:-1], right) for table in BOTH)
    assert all(scene.words(table, WEEK[:1]) == {WEEK[0]: right + EACH} for table in BOTH), "other days are as they were"
    wait_until(
        lambda: [*scene.states(NOTES, others).values()] == ["success"] * OTHERS,
        what="the others", seconds_max=SECONDS_MAX,
    )  # fmt: skip
    return f"of the {OTHERS} others {waiting.count('success')} were through before"


def a_week_cancelled(scene: Scene) -> str:
    """By Airflow's command line, cancelled once the first days are being computed: nothing is half done."""
    before = {table: scene.words(table, WEEK[:4]) for table in BOTH}
    number = _by_command_line(scene, VIEW)
    wait_until(lambda: _begun(scene, VIEW, number), what="days are being computed", seconds_max=SECONDS_MAX)
    status, answer = scene.airflow.ask(f"/api/v2/backfills/{number}/cancel", {}, method="PUT")
    assert status == 200, answer
    wait_until(
        lambda: {*scene.states(VIEW, number).values()} <= {"success", "failed"}, what="it is over",
        seconds_max=SECONDS_MAX,
    )  # fmt: skip
    states = [*scene.states(VIEW, number).values()]
    after = scene.words(VIEW, WEEK[:4])
    right = sum(words_of(one) for one in range(EACH))
    assert all(after[day] in (right, before[VIEW][day]) for day in WEEK[:4]), after
    return f"{states.count('success')} days replayed, {states.count('failed')} not"


def a_week_with_the_driver_killed(scene: Scene) -> str:
    """The same once more, and the aggregate's; the driver dies in the midst."""
    numbers = {table: _by_command_line(scene, table) for table in BOTH}
    wait_until(lambda: _begun(scene, VIEW, numbers[VIEW]), what="days are computed", seconds_max=SECONDS_MAX)
    with Store(scene.settings.control_dsn()) as store:
        wait_until(lambda: bool(store.commands(kind="recompute", state="running")), what="it has begun")
        lease = store.lease("tiny")
    assert lease is not None
    os.kill(lease.pid, signal.SIGKILL)
    wait_until(
        lambda: all([*scene.states(table, one).values()] == ["success"] * 7 for table, one in numbers.items()),
        what="the week of both", seconds_max=SECONDS_MAX,
    )  # fmt: skip
    told = {table: scene.results(table, scene.states(table, one)) for table, one in numbers.items()}
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


def _by_command_line(scene: Scene, table: str) -> int:
    """Have Airflow's command line order the week; the backfill's number."""
    dag = f"replay__{table}"
    said(
        scene.settings, "airflow", "backfill", "create", "--dag-id", dag, "--from-date", WEEK[0],
        "--to-date", WEEK[-1], "--reprocess-behavior", "completed", "--max-active-runs", "7",
    )  # fmt: skip
    status, answer = scene.airflow.ask(f"/api/v2/backfills?dag_id={dag}&limit=100")
    assert status == 200, answer
    return max(int(one["id"]) for one in answer["backfills"])


def _begun(scene: Scene, table: str, number: int) -> bool:
    """Whether some of its runs are at it."""
    return "running" in scene.states(table, number).values()


STEPS = (three_days_while_others_wait, a_week_cancelled, a_week_with_the_driver_killed, every_five_minutes)


@contextmanager
def at_work() -> Iterator[Scene]:
    """The stack with all that."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-replays-") as folder:
        project = tiny(Path(folder) / "project")
        project.edit("expectations/silver/notes.yml", "min_value: 0, max_value: 3}", "min_value: 0}")
        project.write("tables/gold/words_per_day/table.py", _TABLE)
        project.write("tables/gold/words_per_day/transform.py", _TRANSFORM)
        project.write("expectations/gold/words_per_day.yml", "expectations: []\n")
        for table in BOTH:
            project.edit(f"tables/{table.replace('.', '/')}/transform.py", _RIGHT, _WRONG)
        file = project.folder / "deltaworks.toml"
        file.write_text(f'{file.read_text()}\n[replays]\n"{AGGREGATE}" = "*/5 * * * *"\n')
        project.take_dags("streams", "replay")
        with running_stack(parts=("control", "kafka", "airflow"), project=project.folder) as settings:
            scene = Scene(settings, project)
            try:
                scene.begin()
                yield scene
            finally:
                scene.end()


def main() -> int:
    """Print a line for each step; the exit code is that of the first that failed."""
    with at_work() as scene:
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
    sys.exit(main())
