"""What the how-to does in a notebook, in a process of its own, over a real small lake."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks.settings import ROOT, Settings
from tests.members import lake_of_members

SUITE = """# Kept by: the club's office.
expectations:
  - {type: expect_column_values_to_be_unique, kwargs: {column: member_id}, severity: critical}
"""
REFUSED = """
try:
    suite.add_expectation(gxe.ExpectColumnMaxToBeBetween(column="height", max_value=1, severity="warning"))
except Exception as error:
    print(error)
suite.expectations[0].severity = "warning"
suite.expectations[0].save()
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Give the tiny project with a suite, and a table of it in the lake."""
    return lake_of_members(tmp_path, SUITE)


def run(program: str, settings: Settings, folder: Path) -> str:
    """Run a program in the project, and give what it prints."""
    path = folder / "notebook.py"
    path.write_text(program)
    environment = {**settings.inherited(), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_steps_of_the_how_to(settings: Settings, tmp_path: Path) -> None:
    """The suite is run over the rows; what is added or changed is in the project's file; what is wrong is not."""
    text = (ROOT / "docs/how-to/quality.md").read_text()
    (steps,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    steps = steps.replace("gold.daily_orders", "silver.members").replace("orders", "dues")

    said = run(steps + REFUSED, settings, tmp_path)

    assert "True" in said.splitlines()
    assert "there is no column height" in said
    kept = (settings.project / "expectations/silver/members.yml").read_text()
    assert kept.startswith("# Kept by: the club's office.\n")
    assert re.findall(r"type: (\w+)", kept) == ["expect_column_values_to_be_unique", "expect_column_max_to_be_between"]
    assert re.findall(r"severity: (\w+)", kept) == ["warning", "warning"]
    assert "max_value: 10000" in kept


def test_importing_it_loads_neither_spark_nor_great_expectations(settings: Settings, tmp_path: Path) -> None:
    """So whatever needs a rule pays for no notebook."""
    program = "import sys, deltaworks.quality\nprint({'pyspark', 'great_expectations'} & {*sys.modules})"

    assert run(program, settings, tmp_path) == "set()\n"
