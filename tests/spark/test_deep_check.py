"""`table check --deep`: what only Spark's analysis finds wrong with a transform."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltaworks.catalog import Finding, check, load
from deltaworks.catalog.new_table import new_table
from deltaworks.engine.deep_check import deep_findings, transforms
from deltaworks.settings import ROOT
from tests.mistakes import CITIES, CITIES_TRANSFORM, DAYS, DAYS_TRANSFORM, Edit, Mistake
from tests.tiny_project import TINY, Project
from tests.unit.test_table_new import WISHES

MISTAKES = []


@pytest.mark.parametrize("folder", [ROOT, TINY], ids=["shop", "tiny"])
def test_our_transforms_are_right(folder: Path, spark: SparkSession) -> None:
    """What we hand out gives the declared columns."""
    catalog = load(folder)

    assert transforms(catalog) > 0
    assert deep_findings(catalog, spark) == []


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_mistake_in_a_transform_is_found(
    mistake: Mistake, tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    """The finding has file and line, what is wrong, and the next step; nothing of the JVM is printed."""
    project = Project(tmp_path / "project")
    mistake.make(project)
    assert check(project.folder) == []

    findings = deep_findings(load(project.folder), spark)

    assert findings == mistake.findings
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", [name for name, wish in WISHES.items() if wish.name.startswith("gold.")])
def test_transform_of_a_new_table_is_right(name: str, tmp_path: Path, spark: SparkSession) -> None:
    """What `table new` writes passes the deep check too."""
    project = Project(tmp_path / "project")
    new_table(project.folder, WISHES[name])

    assert deep_findings(load(project.folder), spark) == []
