"""I4: a sum that is constant in the source is constant in every version of a table that sums it."""

from itertools import takewhile

from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.checker.picture import Picture
from deltaworks.engine.log import whole_from


def constant(picture: Picture, table: str, expression: str) -> list[Finding]:
    """Evaluate an SQL expression such as `sum(dues)` in each version that has rows and can be opened from the log.

    Two values or more are a finding, and so is a table in which there was nothing to compare.
    """
    held = picture.tables.get(table)
    seen: dict[object, int] = {}
    looked = 0
    first = 0 if held is None else whole_from(held.path)  # there are many more in the past
    for commit in takewhile(lambda one: one.version >= first, held.commits() if held is not None else ()):
        if held is None or not commit.added or (older := held.at(commit.version)) is None:
            continue
        picture.connection.register("as of then", older.to_pyarrow_dataset())
        value = picture.connection.execute(f'select {expression} from "as of then"').fetchone()  # noqa: S608  # the caller's SQL
        looked += 1
        if value is not None and value[0] is not None:
            seen.setdefault(value[0], commit.version)
    if len(seen) > 1:
        told = ", ".join(f"{value} in version {version}" for value, version in list(seen.items())[:3])
        return [Finding("I4", table, f"{expression} has {len(seen)} values: {told}", "Look at these versions")]
    if not seen:
        return [Finding("I4", table, f"{expression} was found in none of {looked} versions", "Compare another table")]
    return []
