"""The two commit paths are one. `python -m tests.differential` tries many more projects than the one here."""

from pathlib import Path

from pyspark.sql import SparkSession

from deltaworks import catalog
from deltaworks.words.keeping import Aggregate, Append, History, Latest, Raw, View
from deltaworks.words.types import PLAIN
from tests.chance import Share, seeded
from tests.differential import differences
from tests.generated import COLUMNS, project


def test_every_way_of_keeping_and_every_type_is_there(tmp_path: Path) -> None:
    """What is not made by chance is not held against anything."""
    project(tmp_path / "project", seeded())

    kept = {type(known.table.kept_as) for known in catalog.load(tmp_path / "project").tables.values()}

    assert kept >= {Raw, Append, Latest, History, Aggregate, View}
    assert {kind.partition("(")[0] for kind, _ in COLUMNS.values()} == {*PLAIN, "decimal"}


def test_both_commit_paths_leave_the_same_rows_and_entries(spark: SparkSession, tmp_path: Path, share: Share) -> None:
    """A project made by chance, by Arrow, and with changes of the path in mid-stream; all readers read it.

    A batch over everything gives the same rows too.
    """
    assert differences(spark, tmp_path, count=len(share(range(3))), others=("changing",)) == []
