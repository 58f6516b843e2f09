"""Rows that raise, found by halves among those that do not. Which errors are a row's, the caller says."""

from collections.abc import Callable

Try = Callable[[int, int], None]
"""Evaluates the rows from the first to before the second; raises what they raise."""
Ours = Callable[[Exception], bool]
"""Whether an error comes from a row."""


class TooManyError(Exception):
    """More rows raise than are looked for, or finding them takes more tries than are made.

    `found`: those that raised so far. `open_ranges`: those that were not looked through.
    """

    def __init__(self, found: dict[int, Exception], open_ranges: list[tuple[int, int]]) -> None:
        """Say how far it came."""
        super().__init__(f"{len(found)} rows raise, and {len(open_ranges)} ranges are not looked through")
        self.found, self.open_ranges = found, open_ranges


def raising(
    many: int, attempt: Try, *, ours: Ours, found_max: int, tries_max: int | None = None
) -> dict[int, Exception]:
    """Which of so many rows raise alone, with what they raise; those that only raise together are not told.

    Raises TooManyError if they are more than `found_max`, or if that takes more than `tries_max` tries, and at once
    what is no row's error.
    """
    found: dict[int, Exception] = {}
    open_ranges = [(0, many)] if many else []
    tries = 0
    while open_ranges:
        if len(found) > found_max or tries == tries_max:
            raise TooManyError(found, open_ranges)
        low, high = open_ranges.pop()
        tries += 1
        try:
            attempt(low, high)
        except Exception as error:
            if not ours(error):
                raise
            middle = (low + high) // 2
            if high - low == 1:
                found[low] = error
            else:
                open_ranges += [(middle, high), (low, middle)]
    if len(found) > found_max:
        raise TooManyError(found, open_ranges)
    return found
