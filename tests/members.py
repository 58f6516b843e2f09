"""The tiny project's members in a lake, for tests of what is judged over a table."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from deltaworks.settings import Settings
from tests.tiny_project import Project

SECRET = "Zurich-of-Ada"


def members(*, last: str = SECRET) -> pa.Table:
    """Four members, one of them of a city that no text may name, and the engine's own column."""
    return pa.table(
        {
            "member_id": pa.array([1, 2, 3, 4]),
            "name": ["Ada", "Bo", None, SECRET],
            "city": ["Bern", "Bern", "Basel", last],
            "dues": pa.array([Decimal("1.50")] * 4, pa.decimal128(8, 2)),
            "joined": pa.array([dt.date(2026, 11, 20)] * 4),
            "_seq": pa.array([1, 1, 1, 1]),
        }
    )


def lake_of_members(folder: Path, suite: str) -> Settings:
    """Settings of the tiny project in a folder of this test's own, with a suite of its members and them in the lake."""
    project = Project(folder / "project")
    project.write("expectations/silver/members.yml", suite)
    settings = Settings.load(project.folder, environment={}, data=folder / "data")
    write_deltalake(settings.lake / "silver/members", members())
    return settings
