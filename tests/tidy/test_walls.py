"""Who may import whom: read in the code, tried by importing, and refused by the linter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, files, imports, inside
from tests.tidy.walls import GATES, WALLS, Gate, Wall

_RUFF = ROOT / ".venv/tools/bin/ruff"
_NOT_IMPORTED = ("__main__.py", "env.py")  # programs: the second is run by Alembic
_NO_WALLS = ("tests", "bench")
_BY_PATH = ("dags", "spark_apps")
_TRIED = [wall for wall in WALLS if wall.part != "*.py"]
_LINTED = [wall for wall in WALLS if wall.ruff]


def _part(wall: Wall | Gate) -> str:
    return wall.part


def test_every_part_of_the_code_stands_behind_a_wall() -> None:
    """A new folder of the library, or a new top-level folder with code, says whom it never imports."""
    code = [path for path in files("*.py") if path.parts[0] not in _NO_WALLS]
    walled = {path for wall in WALLS if wall.part != "*.py" for path in wall.files()}
    gated = {path for gate in GATES for path in gate.files()}

    assert code
    assert not [str(path) for path in code if path not in walled | gated]


@pytest.mark.parametrize("wall", WALLS, ids=_part)
def test_no_file_imports_over_a_wall(wall: Wall) -> None:
    """Read statically, so imports inside functions and under TYPE_CHECKING count too."""
    read = [(path, line, name) for path in wall.files() for line, name in imports(path)]

    over = [f"{path}:{line} {name}" for path, line, name in read if any(inside(name, other) for other in wall.never)]

    assert read, f"{wall.part} matches no import at all"
    assert not over, f"{wall.part} never imports {wall.never}: {wall.why}"


@pytest.mark.parametrize("gate", GATES, ids=_part)
def test_tables_import_only_what_they_are_written_in(gate: Gate) -> None:
    """A declaration needs the words only, a transform Spark's DataFrames and the words only."""
    read = [(path, line, name) for path in gate.files() for line, name in imports(path)]

    other = [f"{path}:{line} {name}" for path, line, name in read if not any(inside(name, fine) for fine in gate.only)]

    assert read, f"{gate.part} matches no import at all"
    assert not other, f"{gate.part} imports only {gate.only}: {gate.why}"


@pytest.mark.parametrize("wall", _TRIED, ids=_part)
def test_part_is_importable_without_what_it_never_imports(wall: Wall, tmp_path: Path) -> None:
    """Every module of the part loads although the packages behind the wall cannot be imported, in its own Python."""
    modules = _modules(wall)

    ran = _import_blocked(wall.never, modules, python=ROOT / f".venv/{wall.python}/bin/python", home=tmp_path)

    assert modules, f"{wall.part} has no module"
    assert ran.returncode == 0, ran.stderr
    assert f"imported {len(modules)}" in ran.stdout


def test_every_declaration_is_importable_without_spark_and_airflow(tmp_path: Path) -> None:
    """All table.py files load by path with neither package importable."""
    declared = [str(path) for path in files("tables/*/*/table.py")]

    ran = _import_blocked(("pyspark", "airflow"), declared, python=Path(sys.executable), home=tmp_path)

    assert declared
    assert ran.returncode == 0, ran.stderr


def test_blocked_package_stops_the_import(tmp_path: Path) -> None:
    """The blocker blocks: json stands for a package that would otherwise be there."""
    ran = _import_blocked(("json",), ["json.decoder"], python=Path(sys.executable), home=tmp_path)

    assert ran.returncode != 0
    assert "wall: json is not to be imported here" in ran.stderr


@pytest.mark.parametrize("wall", _LINTED, ids=_part)
def test_linter_refuses_an_import_over_a_wall(wall: Wall) -> None:
    """Ruff says TID251 for each forbidden import in a file of that folder, and nothing for an allowed one."""
    folder = wall.part.rpartition("/")[0] or "."
    code = "import json\n" + "".join(f"import {name}\n" for name in wall.ruff)

    said = _lint(f"{folder}/probe.py", code)

    assert [line for line in said if "TID251" in line] == said
    assert [line.split(":")[1] for line in said] == [str(number + 2) for number in range(len(wall.ruff))]


def test_driver_loads_no_pandas_until_it_is_asked_for() -> None:
    """It takes as long as all else that a driver loads; who loads it has all that pyarrow does with it."""
    code = (
        "import importlib.util, sys\n"
        "import deltaworks.engine.driver\n"
        "import pyarrow as pa\n"
        "print(pa.scalar(1), 'pandas' in sys.modules)\n"
        "assert importlib.util.find_spec('pandas')\n"
        "import pandas as pd\n"
        "print(pa.array(pd.Series([None, 1.0])).null_count, pa.table({'a': [1]}).to_pandas()['a'].sum())\n"
    )
    python = ROOT / ".venv/spark/bin/python"

    ran = subprocess.run([str(python), "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert ran.stdout.splitlines() == ["1 False", "1 1"], ran.stderr


def test_linter_refuses_the_environment_outside_settings() -> None:
    """os.environ is refused in every part of the library, its own walls or not, and allowed in settings.py."""
    parts = ["deltaworks", "deltaworks/cli", "deltaworks/engine", "deltaworks/supervise", "dags", "spark_apps", "shop"]
    code = "import os\n\nprint(os.environ, os.getenv)\n"

    said = {part: _lint(f"{part}/probe.py", code) for part in parts}

    assert {part: len(lines) for part, lines in said.items()} == dict.fromkeys(parts, 2)
    assert not _lint("deltaworks/settings.py", code)


def test_linter_refuses_clock_and_chance_in_transforms() -> None:
    """A transform that asks for the time or a random number would give other rows in a replay."""
    code = "from pyspark.sql import functions as F\n\nA = [F.rand(), F.current_timestamp(), F.col('a'), F.uuid()]\n"

    said = _lint("tables/silver/probe/transform.py", code)

    assert len(said) == 3


def _modules(wall: Wall) -> list[str]:
    """Names of the part's modules that belong to packages, else their paths (DAG files, Spark apps)."""
    found = []
    for path in wall.files():
        packaged = all((ROOT / folder / "__init__.py").is_file() for folder in path.parents if folder != Path())
        if path.name in _NOT_IMPORTED or not (packaged or path.parts[0] in _BY_PATH):
            continue
        found.append(".".join(path.with_suffix("").parts).removesuffix(".__init__") if packaged else str(path))
    return found


def _import_blocked(
    never: tuple[str, ...], modules: list[str], *, python: Path, home: Path
) -> subprocess.CompletedProcess[str]:
    blocked = [f"--never={name}" for name in never]
    environment = {**os.environ, "AIRFLOW_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)}
    command = [str(python), str(ROOT / "tests/tidy/blocked_import.py"), *blocked, *modules]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def _lint(name: str, code: str) -> list[str]:
    """What Ruff's import bans say about code under that file name, one line each."""
    command = [str(_RUFF), "check", "--select=TID251", "--no-cache", "--quiet", "--output-format=concise"]
    ran = subprocess.run(
        [*command, f"--stdin-filename={name}", "-"], cwd=ROOT, input=code, capture_output=True, text=True, check=False
    )
    assert ran.returncode in {0, 1}, ran.stderr
    return ran.stdout.splitlines()
