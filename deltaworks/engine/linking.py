"""Tables in another lake without their rows being copied: data files never change, so two names for one are enough."""

import os
import shutil
from pathlib import Path

from deltaworks.engine.checker.picture import Held
from deltaworks.errors import LakeError


def link_file(file: Path, to: Path) -> None:
    """The same file under another name; a copy on another disk, or one without links. Raises FileNotFoundError."""
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, to)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(file, to)


def link_table(held: Held, lake: Path) -> None:
    """A table at its version in another lake: its log is copied. Raises LakeError where files are gone."""
    to = lake / held.path.parent.name / held.path.name
    (to / "_delta_log").mkdir(parents=True)
    for file in (held.path / "_delta_log").iterdir():
        if file.name[:20].isdigit() and int(file.name[:20]) <= held.version and file.is_file():
            shutil.copy2(file, to / "_delta_log" / file.name)
    try:
        for name in held.files():
            link_file(held.path / name, to / name)
    except FileNotFoundError:
        finding = f"files of its version {held.version} were deleted"
        raise LakeError(held.name, finding, f'Run it again, or "deltaworks rebuild {held.name}"') from None
