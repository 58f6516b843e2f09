"""The page about chaos names every fault of the kit, and none that is not there."""

import re

from deltaworks.local.chaos.faults import FAULTS
from tests.chaos.report import BEGIN, END, PAGE, README

_NAME = re.compile(r"`([a-z0-9-]+)`")
NAMES = [one.name for one in FAULTS]


def test_page_shows_every_fault_as_the_kit_has_it() -> None:
    """What is done, how it is undone and what must hold, in the kit's words."""
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    shown = [(cells[0].removeprefix("| ").strip("`"), *cells[1:4]) for cells in rows]

    assert len(set(NAMES)) == len(NAMES) > 20
    assert shown == [(one.name, one.does, one.undone, one.holds) for one in FAULTS]


def test_readme_shows_every_fault_with_its_verdict() -> None:
    """Between its two marks, each once."""
    block = README.read_text().partition(BEGIN)[2].partition(END)[0]

    assert sorted(_NAME.findall(block)) == sorted(NAMES)
