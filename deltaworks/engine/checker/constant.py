"""I4: a sum that is constant in the source is constant in every version of a table that sums it."""

from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.checker.picture import Picture
from deltaworks.engine.datasets import dataset_of
from deltaworks.engine.log import whole_from

_PAST_EACH = 100
"""Of the versions that are no longer in the log one in so many is looked at: each takes a log of its own to open."""


def constant(picture: Picture, table: str, expression: str) -> list[Finding]:
    """Evaluate an SQL expression such as `sum(dues)` in the versions that have rows, and their files still.

    Two values or more are a finding, and so is a table in which there was nothing to compare.
    """
    held = picture.tables.get(table)
    seen: dict[object, int] = {}
    looked = 0
    first = 0 if held is None else whole_from(held.path)
    for commit in held.commits() if held is not None else ():
        if held is None or not commit.added or (commit.version < first and commit.version % _PAST_EACH):
            continue
        if (older := held.at(commit.version)) is None or not held.is_whole(older):
            continue
        picture.connection.register("as of then", dataset_of(older))
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
