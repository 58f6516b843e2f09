"""A project with some of the shop's tables, for who measures or tests these alone: each more makes a turn dearer."""

import shutil
from pathlib import Path

from deltaworks import catalog
from deltaworks.settings import ROOT

FIRST = ("gold.page_views_per_minute", "gold.user_sessions", "gold.daily_orders", "silver.customers")
"""One of each kind that is no join: with what they are made from, eight tables."""


def part_of_shop(folder: Path, *tables: str) -> Path:
    """Make `folder` a project with these tables and all that they are made from, as copies; returns it."""
    declared = catalog.load(ROOT)
    wanted, found = list(tables), set[str]()
    while wanted:
        name = wanted.pop()
        found.add(name)
        wanted += declared[name].inputs
    for name in found:
        path = Path(*name.split("."))
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "tables" / path, folder / "tables" / path, ignore=ignored)
        (folder / "expectations" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "expectations" / f"{path}.yml", folder / "expectations" / f"{path}.yml")
    for name in ("topics.toml", "deltaworks.toml"):
        shutil.copy(ROOT / name, folder / name)
    return folder
