"""Mistakes to make in a copy of the tiny project, and what must be found then."""

import dataclasses
from collections.abc import Sequence

from deltaworks.catalog import Finding
from tests.tiny_project import Project

LETTERS = "tables/bronze/letters/table.py"
NOTES = "tables/silver/notes/table.py"
NOTES_CASE = "tables/silver/notes/cases/a_note_counts_once.yml"
MEMBERS = "tables/silver/members/table.py"
DAYS = "tables/gold/notes_per_day/table.py"
DAYS_TRANSFORM = "tables/gold/notes_per_day/transform.py"
DAYS_CASE = "tables/gold/notes_per_day/cases/days_add_up.yml"
CITIES = "tables/gold/members_per_city/table.py"
CITIES_TRANSFORM = "tables/gold/members_per_city/transform.py"
SUITE = "expectations/silver/notes.yml"


@dataclasses.dataclass(frozen=True)
class Edit:
    """Replace a text that is in a file once."""

    path: str
    old: str
    new: str

    def apply(self, project: Project) -> None:
        """Do it."""
        project.edit(self.path, self.old, self.new)


@dataclasses.dataclass(frozen=True)
class Write:
    """Write a file."""

    path: str
    text: str

    def apply(self, project: Project) -> None:
        """Do it."""
        project.write(self.path, self.text)


@dataclasses.dataclass(frozen=True)
class Delete:
    """Delete a file or folder."""

    path: str

    def apply(self, project: Project) -> None:
        """Do it."""
        project.delete(self.path)


@dataclasses.dataclass(frozen=True)
class Mistake:
    """What is done to the project, and all that must be found."""

    name: str
    changes: Sequence[Edit | Write | Delete]
    findings: Sequence[Finding]

    def __str__(self) -> str:
        """Name in the test's report."""
        return self.name.replace(" ", "-")

    def make(self, project: Project) -> None:
        """Make the mistake."""
        for change in self.changes:
            change.apply(project)
