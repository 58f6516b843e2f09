"""Findings: what is wrong in a project, each with its place and the next step."""

import dataclasses
import difflib
from collections.abc import Iterable

from deltaworks.errors import DeclarationError

_LISTED_MAX = 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """Something wrong in the project: where, what, and what to do about it."""

    place: str
    finding: str
    next_step: str

    def __str__(self) -> str:
        """The line that users see, the same as that of an error."""
        return str(self.error())

    def error(self) -> DeclarationError:
        """The finding as an error to raise."""
        return DeclarationError(self.place, self.finding, self.next_step)


def nearest(wrong: str, known: Iterable[str], what: str) -> str:
    """The next step after an unknown name: the nearest one, else all that there are."""
    names = sorted(known)
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wrong.lower(), by_lower, n=1, cutoff=0.5)
    if near:
        return f"The nearest is {by_lower[near[0]]}"
    if not names:
        return f"There are no {what} yet"
    more = f" and {len(names) - _LISTED_MAX} more" if len(names) > _LISTED_MAX else ""
    return f"Known {what} are {', '.join(names[:_LISTED_MAX])}{more}"
