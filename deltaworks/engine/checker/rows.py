"""Two sets of rows held against each other, both ways, each row as often as it is there."""

from collections.abc import Sequence

from deltaworks.engine.checker.picture import Picture, columns, named


def difference(picture: Picture, one: str, other: str, names: Sequence[str]) -> str | None:
    """What differs between two relations of the picture's connection, in numbers; None if they hold the same rows."""
    shown = columns(list(names))
    rows = [f"select {shown} from {named(name)}" for name in (one, other)]  # noqa: S608  # names of tables and columns, quoted
    missing, more = (
        picture.count(f"select count(*) from ({first} except all {second})")  # noqa: S608  # the line above
        for first, second in (rows[::-1], rows)
    )
    return f"{missing} rows missing or other, {more} too many or other" if missing or more else None
