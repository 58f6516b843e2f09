"""A Delta table's rows as a dataset whose files Arrow opens itself."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyarrow import fs

from deltaworks.engine.datasets import dataset_of

ODD = ["with space", "100%", "a:b", "a/b", "a=b", "a+b&c?", "ä", "日本", "%2F", "'", '"', "#", None]
"""What a part's folder has another name for, of which one or two are written for a way to open files."""


def test_reader_that_starts_needs_no_python(tmp_path: Path) -> None:
    """Else a thread of Arrow's, with its lock, and whoever starts a reader, with Python's, wait for each other."""
    table = written(tmp_path / "plain", None)

    assert isinstance(dataset_of(table).filesystem, fs.SubTreeFileSystem)
    assert isinstance(dataset_of(table).filesystem.base_fs, fs.LocalFileSystem)
    assert isinstance(table.to_pyarrow_dataset().filesystem, fs.PyFileSystem), "the default is mended: go without ours"


@pytest.mark.parametrize("folder", ["plain", "with space", "100%", "ä#b", "a?b"])
@pytest.mark.parametrize("by", [None, ["part"]], ids=["whole", "in parts"])
def test_all_rows_are_found_whatever_folders_are_called(tmp_path: Path, folder: str, by: list[str] | None) -> None:
    """As delta-rs finds them, and as they were written."""
    table = written(tmp_path / folder, by)

    found = {(row["part"], row["n"]) for row in dataset_of(table).to_table().to_pylist()}

    assert found == {(part, n) for n, part in enumerate(ODD)}


def written(path: Path, by: list[str] | None) -> deltalake.DeltaTable:
    """A table with a row for each odd name."""
    rows = pa.table({"part": pa.array(ODD, pa.string()), "n": pa.array(range(len(ODD)), pa.int64())})
    deltalake.write_deltalake(str(path), rows, partition_by=by)
    return deltalake.DeltaTable(str(path))
