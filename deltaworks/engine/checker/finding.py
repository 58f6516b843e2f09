"""What a check found."""

from typing import NamedTuple


class Finding(NamedTuple):
    """A promise that does not hold: which, where, by what numbers, what to do. Shows no row: rows may be personal."""

    invariant: str
    place: str
    finding: str
    next_step: str

    def __str__(self) -> str:
        """As errors are written."""
        return f"{self.invariant} {self.place}: {self.finding}. {self.next_step}."
