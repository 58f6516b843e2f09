"""The README shows the repository as it is."""

import re

from tests.tidy.repository import ROOT, files

_BLOCK = re.compile(r"^## The tree\n.*?^```\w*\n(?P<tree>.*?)^```", re.MULTILINE | re.DOTALL)


def test_tree_in_the_readme_is_the_tree() -> None:
    """Every top-level file and folder stands in the block under "The tree", and nothing else does.

    A line of the block names entries, parted by one space, then after two spaces or more what they are for. Indented
    lines go deeper and are not compared. Hidden files are left out.
    """
    readme = ROOT / "README.md"
    assert readme.is_file(), "README.md is missing"
    block = _BLOCK.search(readme.read_text())
    assert block, 'README.md has no fenced block under "## The tree"'

    shown = {name.split("/")[0] for line in block["tree"].splitlines() for name in _names(line)}
    there = {path.parts[0] for path in files() if not path.parts[0].startswith(".")}

    assert there
    assert shown == there


def _names(line: str) -> list[str]:
    """Entries at the start of an unindented line: `tables/<layer>/<table>/  what a table is`."""
    return re.split(r" {2,}", line)[0].split() if line and not line.startswith((" ", "│", "├", "└")) else []
