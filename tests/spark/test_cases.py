"""Cases: each one of every table ends as it says, as a stream with its restarts and as a batch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.cases import Case
from deltaworks.catalog import Catalog
from deltaworks.engine.case_run import Beginnings, Way, run_case, ways
from deltaworks.settings import ROOT, Settings
from deltaworks.words.keeping import Raw
from tests.mistakes import CITIES_TRANSFORM, DAYS_CASE, NOTES_CASE
from tests.states import dated
from tests.tiny_project import TINY, Project

PROJECTS = {"shop": ROOT, "tiny": TINY, "windows": ROOT / "tests" / "windows"}
CATALOGS = {name: catalog.load(folder) for name, folder in PROJECTS.items()}
RUNS = [
    pytest.param(known, case, way, id=f"{project}: {name} {case.name} ({way})")
    for project, known in CATALOGS.items()
    for name, declared in known.tables.items()
    for case in known.cases(name)
    for way in ways(declared)
]


def run(
    spark: SparkSession,
    folder: Path,
    known: Catalog,
    case: Case,
    way: Way = "stream",
    beginnings: Beginnings | None = None,
) -> tuple[str, ...]:
    """Run a case over a lake in the folder."""
    settings = Settings.load(known.project, environment={}, data=folder)
    return run_case(case, way, catalog=known, settings=settings, spark=spark, beginnings=beginnings)


def changed(project: Project, table: str) -> tuple[Catalog, Case]:
    """The project as it is now, and the only case of a table."""
    known = catalog.load(project.folder)
    (case,) = known.cases(table)
    return known, case


def test_every_table_that_computes_has_cases() -> None:
    """The runs below are about something: no table but raw ones is without a case."""
    tables = {known[name].name for known in CATALOGS.values() for name in known.tables}
    raw = {name for known in CATALOGS.values() for name in known.tables if isinstance(known[name].table.kept_as, Raw)}

    tested = {case.table for known in CATALOGS.values() for name in known.tables for case in known.cases(name)}

    assert len(RUNS) > 20
    assert tested == tables - raw


@pytest.fixture(scope="module")
def beginnings(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Beginnings]:
    """Give the lakes that the cases of each project begin with."""
    return {known.project: Beginnings(tmp_path_factory.mktemp("beginnings")) for known in CATALOGS.values()}


@pytest.mark.parametrize(("known", "case", "way"), RUNS)
def test_case_ends_as_it_says(
    spark: SparkSession, tmp_path: Path, beginnings: dict[Path, Beginnings], known: Catalog, case: Case, way: Way
) -> None:
    """Rows and refused rows are those of `then`, whatever way `given` comes."""
    assert not run(spark, tmp_path, known, case, way, beginnings[known.project])


@pytest.mark.parametrize("way", ["stream", "batch", "in parts"])
def test_wrong_rows_are_told_by_column(spark: SparkSession, tmp_path: Path, way: Way) -> None:
    """A row that differs is named by its keys, one that is missing or extra is written as in the case."""
    project = Project(tmp_path / "project")
    project.edit(DAYS_CASE, "words: 17", "words: 18")
    project.edit(DAYS_CASE, '{day: "2025-11-22", notes: 1', '{day: "2025-11-23", notes: 1')

    found = run(spark, tmp_path / "data", *changed(project, "gold.notes_per_day"), way)

    assert found == (
        'differs: {day: "2025-11-21"}: words: expected 18, found 17',
        'missing: {day: "2025-11-23", notes: 1, words: 3, shortest: 3, last: "2025-11-22T00:00:00Z"}',
        'extra: {day: "2025-11-22", notes: 1, words: 3, shortest: 3, last: "2025-11-22T00:00:00Z"}',
    )


def test_wrong_reason_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """A record that is refused for another reason is shown with both."""
    project = Project(tmp_path / "project")
    project.edit(NOTES_CASE, "colour: red}, undeclared field]", "colour: red}, not JSON]")

    found = run(spark, tmp_path / "data", *changed(project, "silver.notes"))

    record = '{"note_id":"b","written_at":1763719200000,"words":3,"colour":"red"}'
    assert found == (f"refused otherwise: {record}: expected not JSON, found undeclared field",)


@pytest.mark.parametrize("way", ["stream", "batch"])
def test_a_history_of_states_ends_as_its_case_says(spark: SparkSession, tmp_path: Path, way: Way) -> None:
    """A late state, and a deletion at the time at which the case says that it arrives."""
    settings = dated(tmp_path)
    project = Project.at(settings.project)
    project.delete("tables/gold/members_per_city")
    project.delete("expectations/gold/members_per_city.yml")
    project.write(
        "tables/silver/members/cases/a_member_leaves.yml",
        """doc: Who left and came back.
given:
  bronze.letters:
    - at: "2026-11-21T10:00:00Z"
    - - {key: {member_id: 1}, value: {member_id: 1, city: Bath, dues: 0, changed_at: "2026-11-21T08:00:00Z"}}
    - at: "2026-11-21T11:00:00Z"
    - - {key: {member_id: 1}, value: null}
      - {key: {member_id: 1}, value: {member_id: 1, city: Linz, dues: 0, changed_at: "2026-11-21T12:00:00Z"}}
    - - {key: {member_id: 1}, value: {member_id: 1, city: Cork, dues: 0, changed_at: "2026-11-21T09:00:00Z"}}
      - {key: {member_id: 1}, value: {member_id: 1, city: Graz, dues: 0, changed_at: "2026-11-23T09:00:00Z"}}
then:
  rows:
    - {member_id: 1, city: Bath, dues: 0, changed_at: "2026-11-21T08:00:00Z", valid_from: "2026-11-21T08:00:00Z",
       valid_to: "2026-11-21T09:00:00Z", is_current: false}
    - {member_id: 1, city: Cork, dues: 0, changed_at: "2026-11-21T09:00:00Z", valid_from: "2026-11-21T09:00:00Z",
       valid_to: "2026-11-21T11:00:00Z", is_current: false}
    - {member_id: 1, city: Linz, dues: 0, changed_at: "2026-11-21T12:00:00Z", valid_from: "2026-11-21T12:00:00Z",
       is_current: true}
  refused:
    - [{key: {member_id: 1}, value: {member_id: 1, city: Graz, dues: 0, changed_at: "2026-11-23T09:00:00Z"}},
       "changed_at: future"]
""",
    )

    assert not run(spark, tmp_path / "data", *changed(project, "silver.members"), way)


def test_stream_runs_the_keys_of_a_view(spark: SparkSession, tmp_path: Path) -> None:
    """`keys_from` that misses a key is found by the stream; a batch computes everything and cannot know."""
    project = Project(tmp_path / "project")
    project.edit(CITIES_TRANSFORM, 'members.select("city")', 'members.where("city <> \'Cork\'").select("city")')
    known, case = changed(project, "gold.members_per_city")

    found = {way: run(spark, tmp_path / way, known, case, way) for way in ways(known[case.table])}

    assert found == {"stream": ('missing: {city: "Cork", members: 2, dues: "22.50"}',), "batch": ()}


def test_command_line_says_which_case_failed(tmp_path: Path) -> None:
    """`table test` tells the differences of each case, an error as one of them, and ends with 1 if there are any."""
    project = Project(tmp_path / "project")
    project.edit(DAYS_CASE, "words: 17", "words: 18")
    project.edit(CITIES_TRANSFORM, 'F.sum("dues")', 'F.sum("due")')
    command = [sys.executable, "-m", "deltaworks.cli", "--project", str(project.folder), "table", "test"]

    ran = subprocess.run(
        [*command, "gold.notes_per_day", "gold.members_per_city", "silver.notes", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (1, "")
    rows = json.loads(ran.stdout)
    wrong = ['differs: {day: "2025-11-21"}: words: expected 18, found 17']
    (raised,) = rows[1]["differences"]["batch"]
    assert raised.startswith("raised AnalysisException: A column, variable, or function parameter with name `due` ")
    assert [(row["table"], row["case"], row["verdict"], row["differences"]) for row in (rows[0], rows[2])] == [
        ("gold.notes_per_day", "days_add_up", "failed", {"stream": wrong, "batch": wrong, "in parts": wrong}),
        ("silver.notes", "a_note_counts_once", "ok", {"stream": [], "batch": []}),
    ]


LATE_CASE = """doc: The second batch is judged by the first, however the rows come.
given:
  silver.notes:
    - - {note_id: a, written_at: "2025-11-21T10:00:00Z", words: 1}
      - {note_id: b, written_at: "2025-11-20T10:00:00Z", words: 2}
    - restart
    - - {note_id: c, written_at: "2025-11-21T09:00:00Z", words: 4}
      - {note_id: d, written_at: "2025-11-21T08:59:59.999999Z", words: 8}
then:
  rows:
    - {day: "2025-11-21", notes: 2, words: 5, shortest: 1, last: "2025-11-21T10:00:00Z"}
    - {day: "2025-11-20", notes: 1, words: 2, shortest: 2, last: "2025-11-20T10:00:00Z"}
  late:
    - {note_id: LATE, written_at: "2025-11-21T08:59:59.999999Z", words: 8}
"""


@pytest.mark.parametrize("way", ["stream", "batch", "in parts"])
@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("d", ()),
        (
            "e",
            (
                'not late: {note_id: "e", written_at: "2025-11-21T08:59:59.999999Z", words: 8}',
                'late: {note_id: "d", written_at: "2025-11-21T08:59:59.999999Z", words: 8}',
            ),
        ),
    ],
)
def test_late_rows_of_a_case(spark: SparkSession, tmp_path: Path, way: Way, named: str, told: tuple[str, ...]) -> None:
    """Rows that the table sets aside are part of what a case says, and are the same in every way."""
    project = Project(tmp_path / "project")
    project.edit("tables/gold/notes_per_day/table.py", "late=correct(", "late=side_output(")
    project.edit("tables/gold/notes_per_day/table.py", "aggregate, correct, greatest", "aggregate, greatest")
    project.edit("tables/gold/notes_per_day/table.py", "hours, least", "hours, least, side_output")
    project.write(DAYS_CASE, LATE_CASE.replace("LATE", named))

    assert run(spark, tmp_path / "data", *changed(project, "gold.notes_per_day"), way) == told
