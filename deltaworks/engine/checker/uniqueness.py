"""I2: an offset is in bronze once, a key in its table (at any time) once, an event once inside the horizon."""

from collections.abc import Iterator
from datetime import timedelta

from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.checker.picture import Picture, columns, named
from deltaworks.words.keeping import Append, History, Raw

_STEP = "Keep the lake and report it; then rebuild the table"
_MICROSECOND = timedelta(microseconds=1)
_COORDINATES = ("topic", "partition", "offset")


def uniqueness(picture: Picture) -> Iterator[Finding]:
    """Look for copies in every table that promises none."""
    for declared, held in picture:
        kept = declared.table.kept_as
        if isinstance(kept, Raw):
            yield from _copies(picture, held.name, _COORDINATES)
        elif isinstance(kept, Append):
            yield from _copies(picture, held.name, ("_source",))
            yield from _events(picture, held.name, kept)
        elif isinstance(kept, History):
            yield from _copies(picture, held.name, (*declared.keys, "_source" if kept.by is None else "valid_from"))
            yield from _states(picture, held.name, kept)
        else:
            yield from _copies(picture, held.name, declared.keys)
        for suffix, by in (("quarantine", _COORDINATES), ("patches", _COORDINATES), ("late", ("_source",))):
            side = picture.beside(held.name, suffix)
            if side is not None and set(by) <= set(side.schema.names):
                yield from _copies(picture, side.name, by)


def _copies(picture: Picture, name: str, by: tuple[str, ...]) -> Iterator[Finding]:
    grouped = f"select count(*) - 1 as more from {named(name)} group by {columns(by)} having count(*) > 1"  # noqa: S608  # quoted
    more = picture.count(f"select sum(more) from ({grouped})")  # noqa: S608  # the line above
    if more:
        yield Finding("I2", name, f"{more} rows more than there are values of {', '.join(by)}", _STEP)


def _states(picture: Picture, name: str, kept: History) -> Iterator[Finding]:
    """The states of a key follow each other by sequence: none ends before it begins, or after the next one does.

    Where a column places them, one that was taken away before it held stands in the time of others.
    """
    never = "false" if kept.by is None else "valid_from is not distinct from valid_to"
    after = f"lead(valid_from) over (partition by {columns(kept.keys)}, {never} order by _source)"
    next_from = f"case when {never} then null else {after} end"
    states = f"select valid_from, valid_to, is_current, {next_from} as next_from from {named(name)}"  # noqa: S608  # quoted
    wrong = picture.count(
        f"select count(*) from ({states}) where valid_to < valid_from or is_current <> (valid_to is null)"  # noqa: S608  # the line above
        " or (next_from is not null and (valid_to is null or valid_to > next_from))"
    )
    if wrong:
        yield Finding("I2", name, f"{wrong} states do not end by the time that the next one begins", _STEP)


def _events(picture: Picture, name: str, kept: Append) -> Iterator[Finding]:
    """Accepted events of one key lie further apart than the horizon, by the broker's time."""
    if not kept.dedupe_by:
        return
    within = kept.within // _MICROSECOND
    apart = (
        f"epoch_us(_arrived) - lag(epoch_us(_arrived)) over (partition by {columns(kept.dedupe_by)} order by _arrived)"
    )
    copies = picture.count(f"select count(*) from (select {apart} as apart from {named(name)}) where apart <= {within}")  # noqa: S608  # quoted
    if copies:
        finding = f"{copies} rows are copies of an event by {', '.join(kept.dedupe_by)} within {kept.within}"
        yield Finding("I2", name, finding, _STEP)
