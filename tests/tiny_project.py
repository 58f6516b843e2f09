"""Copies of the tiny project, to be broken by tests."""

import shutil
from pathlib import Path

from deltaworks.settings import ROOT

TINY = Path(__file__).parent / "tiny"


class Project:
    """A copy of the tiny project in a folder of its own."""

    def __init__(self, folder: Path, *, of: Path = TINY) -> None:
        """Copy it, or a copy `of` it, into the folder, which must not exist."""
        self.folder = Path(shutil.copytree(of, folder, ignore=shutil.ignore_patterns(".deltaworks", "__pycache__")))

    @classmethod
    def at(cls, folder: Path) -> "Project":
        """One that is there."""
        found = cls.__new__(cls)
        found.folder = folder
        return found

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text that is there exactly once."""
        before = (self.folder / path).read_text()
        assert before.count(old) == 1, f"{old!r} is {before.count(old)} times in {path}"
        (self.folder / path).write_text(before.replace(old, new))

    def write(self, path: str, text: str) -> None:
        """Write a file, and the folders that it needs."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def take_dags(self, *names: str) -> None:
        """Copy files of this checkout's dags/."""
        (self.folder / "dags").mkdir(exist_ok=True)
        for name in names:
            shutil.copy(ROOT / "dags" / f"{name}.py", self.folder / "dags")

    def delete(self, path: str) -> None:
        """Delete a file or folder that is there."""
        target = self.folder / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()
