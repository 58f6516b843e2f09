"""Tables in another lake without their rows being copied: data files never change, so two names for one are enough."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import deltalake

from deltaworks.engine.checker.picture import Held
from deltaworks.engine.entry import Entry
from deltaworks.engine.log import checkpoints, files_before, log_has, whole_from
from deltaworks.engine.past import unpack
from deltaworks.errors import LakeError


def link_file(file: Path, to: Path) -> None:
    """The same file under another name; a copy on another disk, or one without links. Raises FileNotFoundError."""
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, to)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(file, to)


def lay_empty(held: Held, lake: Path) -> None:
    """A table as it was before it took its first row, in another lake."""
    now = held.delta
    entry = Entry(kind="create", app=held.entry.app, epoch=held.entry.epoch)
    to = lake / held.path.parent.name / held.path.name
    to.mkdir(parents=True)
    deltalake.DeltaTable.create(
        str(to),
        schema=now.schema(),
        partition_by=now.metadata().partition_columns,
        commit_properties=deltalake.CommitProperties(custom_metadata={"userMetadata": entry.to_json()}),
    )


def link_table(held: Held, lake: Path) -> None:
    """A table at its version in another lake: its log is copied. Raises LakeError where files are gone."""
    to = lake / held.path.parent.name / held.path.name
    log = to / "_delta_log"
    log.mkdir(parents=True)
    with suppress(FileNotFoundError):  # its owner shortens it from the other end
        for file in reversed(files_before(held.path, held.version + 1)):
            shutil.copy2(file, log / file.name)
    if not log_has(to, held.version) or whole_from(to) not in (0, *checkpoints(to)):
        for file in log.iterdir():
            file.unlink()
        unpack(held.path, held.version, log)
    if not log_has(to, held.version):
        finding = f"its log was shortened beyond version {held.version} meanwhile"
        raise LakeError(held.name, finding, "Run it again")
    try:
        for name in held.files():
            link_file(held.path / name, to / name)
    except FileNotFoundError:
        raise _deleted(held) from None


def refuse_deleted(held: Held) -> None:
    """Raise LakeError where files of a table's version are gone, as linking it would."""
    if not held.is_whole(held.delta):
        raise _deleted(held)


def _deleted(held: Held) -> LakeError:
    finding = f"files of its version {held.version} were deleted"
    table, _, _ = held.name.partition("__")  # what stands beside a table is made anew with it
    return LakeError(held.name, finding, f'Name a later version, or run "deltaworks rebuild {table}"')
