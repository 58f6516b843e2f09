"""How a table's files are laid out: in parts, so that a merge and a query open only those that they need."""

from deltaworks.words._word import word


@word
class DayOf:
    """One part per day (UTC) of a column."""

    column: str


def day_of(column: str) -> DayOf:
    """Keep the rows of each day of a timestamp or date together."""
    return DayOf(column=column)
