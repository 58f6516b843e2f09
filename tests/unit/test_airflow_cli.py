"""Airflow's own command line is there once the stack has an Airflow; tests/stack/test_in_airflow.py has it answer."""

import os
import subprocess
from pathlib import Path

from deltaworks.settings import ROOT


def test_without_an_airflow_it_says_what_to_do(tmp_path: Path) -> None:
    """One line, and nothing is made."""
    asked = subprocess.run(
        [str(ROOT / "bin/deltaworks"), "airflow", "dags", "list", "--output", "json"],
        env={**os.environ, "DELTAWORKS_DATA": str(tmp_path / "data")}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert asked.returncode == 3
    assert asked.stderr.splitlines() == [f'{tmp_path}/data: has no Airflow yet. Run "deltaworks up airflow".']
    assert not (tmp_path / "data").exists()
