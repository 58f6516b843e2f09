"""Where tables lie in a lake. No Spark here."""

from pathlib import Path


def folder_of(name: str, lake: Path) -> Path:
    """The folder of a table, `layer.table`."""
    layer, _, table = name.partition(".")
    return lake / layer / table
