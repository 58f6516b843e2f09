"""A project with some of the shop's tables, for who measures or tests these alone: each more makes a turn dearer."""

import re
import shutil
from pathlib import Path

from deltaworks import catalog
from deltaworks.settings import ROOT
from deltaworks.words.keeping import Raw
from deltaworks.words.reading import Json

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
    for name in found:
        if isinstance(declared[name].table.kept_as, Raw):
            read = {reads.topic for one in found if isinstance(reads := declared[one].table.reads, Json)}
            _narrow(
                folder / "tables" / Path(*name.split(".")) / "table.py", [t for t in declared[name].topics if t in read]
            )
    shutil.copy(ROOT / "topics.toml", folder / "topics.toml")
    text = (ROOT / "deltaworks.toml").read_text()
    # few tables can have their turn at any time
    text, found_triggers = re.subn(r"trigger_seconds = [\d.]+", "trigger_seconds = 0.5", text)
    assert found_triggers
    (folder / "deltaworks.toml").write_text(text)
    return folder


def _narrow(declaration: Path, topics: list[str]) -> None:
    """Have a bronze table read only the topics that some table parses; changes of a database are all one topic."""
    if topics:
        listed = ", ".join(f'"{topic}"' for topic in topics)
        reads, text = r"reads=kafka\(.*?\),\s+kept_as", declaration.read_text()
        text, found = re.subn(reads, f"reads=kafka({listed}), kept_as", text, flags=re.DOTALL)
        assert found == 1
        declaration.write_text(text)
