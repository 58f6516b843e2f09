"""An input is the table that rows were taken from, and it has what was taken: else nothing more is taken from it.

A version, and the number of an ingest batch, mean something in one table only, and there as long as it goes forward. A
folder that was brought back from a copy is behind its readers, and passes them later, with other rows under the same
numbers; one that was made anew begins at 0. So a place says which table it is in, and who committed what was taken
last: an owner's epoch is its own, so another commit of the same number is another owner's.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from deltaworks.engine.entry import Entry, Position
from deltaworks.engine.log import first_version, read_log
from deltaworks.errors import LakeError


class Source(Protocol):
    """A table that others read, at a version."""

    @property
    def name(self) -> str:
        """Layer and name."""

    @property
    def path(self) -> Path:
        """Its folder."""

    @property
    def version(self) -> int:
        """Which one that is."""

    @property
    def entry(self) -> Entry:
        """Its last entry."""

    @property
    def made(self) -> str:
        """Which table it is: another one of its name has another."""


def other(reader: str, entry: Entry, source: Source) -> LakeError | None:
    """Why an input is not what a table, by its entry, has taken rows from; None if it is, or if nothing was taken."""
    taken, what, has = _taken(entry.position, source)
    known = entry.position.inputs.get(source.name, source.made)
    place = f"{source.name} up to {what} {taken}"
    if not taken or (known == source.made and taken <= has and _is_of(source, taken, what, _epoch(entry, source))):
        return None
    if known != source.made:
        finding = f"has taken {place}, and that was made anew since: it has come to {what} {has}"
    elif taken > has:
        finding = f"has taken {place}, and that is older: it has come to {what} {has}"
    else:
        finding = f"has taken {place}, and that went back since: it has come to {what} {has} with other rows"
    next_step = f'Stop the app and bring {source.name} back as it was, or run "deltaworks rebuild {reader}"'
    return LakeError(reader, finding, next_step)


def refuse_others(reader: str, entry: Entry, sources: Iterable[Source]) -> None:
    """Raise LakeError where one of its inputs is not what a table has taken rows from."""
    for source in sources:
        if (error := other(reader, entry, source)) is not None:
            raise error


def known(entry: Entry, sources: Iterable[Source]) -> Position:
    """A table's place, with what entries of before did not say: which tables its inputs are.

    Of one that is refused, that is told too: it may come to the same number with other rows.
    """
    position = entry.position
    for source in sources:
        taken, what, has = _taken(position, source)
        if not taken or source.name in position.inputs:
            continue
        is_it = taken <= has and _is_of(source, taken, what, -entry.epoch)
        epoch = epoch_of(source, taken, batch=what == _BATCH) if is_it else -entry.epoch
        position = placed(position, {source.name: source.made}, {source.name: epoch})
    return position


def placed(position: Position, made: dict[str, str], epochs: dict[str, int | None]) -> Position:
    """A place that says of these inputs which tables they are, and who committed what was taken last, if it is told."""
    others = {name: epoch for name, epoch in position.epochs.items() if name not in epochs}
    told = {name: epoch for name, epoch in epochs.items() if epoch is not None}
    return replace(position, inputs={**position.inputs, **made}, epochs={**others, **told})


def common(entry: Entry, source: Source) -> int:
    """Up to which ingest batch of its input what a table has taken is what the input has."""
    taken, _, has = _taken(entry.position, source)
    if entry.position.inputs.get(source.name, source.made) != source.made:
        return 0
    if other("", entry, source) is None:
        return taken
    epoch = abs(_epoch(entry, source))
    for version in range(source.version, (first_version(source.path) or 0) - 1, -1):
        found = read_log(source.path, version)
        if found is not None and found.entry is not None and found.entry.epoch <= epoch:
            return min(found.entry.ingest_seq, taken, has)
    return 0


def epoch_of(source: Source, taken: int, *, batch: bool) -> int | None:
    """The epoch of the owner that committed a version, or an ingest batch; None where that is not told any more."""
    version = _version_of(source, taken) if batch else taken
    found = None if version is None else read_log(source.path, version)
    return None if found is None or found.entry is None else found.entry.epoch


_BATCH, _VERSION = "ingest batch", "version"


def _taken(position: Position, source: Source) -> tuple[int, str, int]:
    """How far it was taken, in what that is counted, and how far it is."""
    if source.name in position.batches:
        return position.batches[source.name], _BATCH, source.entry.ingest_seq
    return position.versions.get(source.name, 0), _VERSION, source.version


def _epoch(entry: Entry, source: Source) -> int:
    """Whose commit was taken last; below 0: it was this owner's, or an earlier one's."""
    return entry.position.epochs.get(source.name, -entry.epoch)


def _is_of(source: Source, taken: int, what: str, epoch: int) -> bool:
    found = epoch_of(source, taken, batch=what == _BATCH)
    return found is None or found == epoch or found <= -epoch


def _version_of(source: Source, seq: int) -> int | None:
    """The version that brought an ingest batch, looked for by halves; None if it is not told any more."""
    first = low = first_version(source.path) or 0
    high = source.version
    while low < high:
        middle = (low + high) // 2
        found = read_log(source.path, middle)
        if found is None or found.entry is None:
            return None
        low, high = (middle + 1, high) if found.entry.ingest_seq < seq else (low, middle)
    return None if low == first and first else low
