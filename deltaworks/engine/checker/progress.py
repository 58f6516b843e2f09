"""I6: when the drivers have stopped after their last batch, no table is behind its inputs."""

from collections.abc import Iterator

from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.checker.picture import Held, Picture
from deltaworks.engine.entry import ROW_KINDS

_STEP = 'Run "deltaworks run APP --drain" and look at the app\'s log'


def progress(picture: Picture) -> Iterator[Finding]:
    """Compare each position with what its inputs have."""
    for declared, held in picture:
        for name in declared.inputs:
            source = picture.tables.get(name)
            if source is None:
                continue
            batch = held.entry.position.batches.get(name)
            if batch is None:
                yield from _versions(held, source)
            elif batch < source.entry.ingest_seq:
                told = f"{name} is at ingest batch {source.entry.ingest_seq}, taken are {batch}"
                yield Finding("I6", held.name, told, _STEP)


def _versions(held: Held, source: Held) -> Iterator[Finding]:
    """Versions that only confirm a position bring nothing to take."""
    after = held.entry.position.versions.get(source.name, 0)
    if 0 < after < source.entry.replaced_at:
        told = f"what it has taken of {source.name} gave way to other rows in version {source.entry.replaced_at}"
        yield Finding("I6", held.name, told, f'Run "deltaworks rebuild {held.name}"')
    behind, oldest = 0, source.version + 1
    for commit in source.commits():
        oldest = commit.version
        if commit.version <= after:
            break
        behind += bool(commit.added) and commit.entry is not None and commit.entry.kind in ROW_KINDS
    if not behind and oldest > after + 1 and source.rows():
        told = f"the log of {source.name} begins at version {oldest}, taken was up to {after}"
        yield Finding("I6", held.name, told, _STEP)
    if behind:
        told = f"{behind} versions of {source.name} have rows that were not taken"
        yield Finding("I6", held.name, told, _STEP)
