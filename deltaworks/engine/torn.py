"""The last commits of tables, where a power cut has torn them: they are cut off, and what they brought comes again.

What is not on the disk yet may be lost in part (`disk.py`): a name is there, and the file is empty or ends too early. A
file system with a journal keeps names in the order in which they were made, not what is in them, so a table may stand
while what it has taken its rows from does not. Up to its last checkpoint a table was on the disk when that was written;
what came later is looked at, each time an owner opens the app. From the first commit on that is not whole, or adds a
file that is not, all of them go; what is not there at all was deleted, as a VACUUM does. So do those of tables above
that took what is gone, those of a table whose tables beside it lost what it says that they have, and those beside a
table that came before a commit that went.

What went was told to nobody: copies, topics, days that are closed and ends of orders wait for the disk.
"""

import json
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake

from deltaworks.engine import disk
from deltaworks.engine.copies import LAYER
from deltaworks.engine.entry import Entry, Position
from deltaworks.engine.folders import folder_of
from deltaworks.engine.log import actions_of, checkpoints, log_has, newest_version, read_log
from deltaworks.engine.trimming import is_readable
from deltaworks.errors import LakeError

ASIDE = "_torn"
"""Folder of a table, hidden from readers and from a VACUUM, with the commits that were cut off."""
_PLAN = "torn.{app}.json"
"""What is to be cut off, while it is: a power cut in the midst leaves tables that no longer say so."""
_MAGIC = b"PAR1"
_HINT = "_last_checkpoint"
log = logging.getLogger("deltaworks.torn")


@dataclass(kw_only=True)
class Tail:
    """What a table has committed since its last checkpoint; `head` is the last commit that stays."""

    name: str
    path: Path
    newest: int
    head: int = field(init=False)

    def __post_init__(self) -> None:
        """All that is whole stays, at first."""
        self.head = self._whole_upto()

    @cached_property
    def base(self) -> int:
        """The last checkpoint that is whole, -1 where there is none: up to here the disk had all."""
        return _last_whole(self.path)

    @property
    def is_cut(self) -> bool:
        """Whether a commit goes."""
        return self.head < self.newest

    @property
    def entry(self) -> Entry | None:
        """The last one that stays; None where there is none, or it is somebody else's."""
        found = read_log(self.path, self.head) if self.head >= 0 else None
        return None if found is None else found.entry

    @cached_property
    def made(self) -> str | None:
        """Which table it is, by what stays of it; None where nothing does."""
        return None if self.head < 0 else str(deltalake.DeltaTable(str(self.path), version=self.head).metadata().id)

    def _whole_upto(self) -> int:
        if self.base < 0 and not log_has(self.path, 0):
            return self.newest  # it cannot be opened, which has nothing to do with its tail
        for version in range(self.base + 1, self.newest + 1):
            try:
                actions = actions_of(self.path, version)
            except FileNotFoundError:  # nor has what somebody deleted
                return self.newest
            except LakeError:
                return version - 1
            if any(_is_torn(self.path / name, size) for name, size in _files(actions)):
                return version - 1
        return self.newest


def mend(app: str, inputs: Mapping[str, Iterable[str]], *, lake: Path, guard: Callable[[], None]) -> None:
    """Cut off what a power cut has torn, of the tables of an app; `inputs` are those that each of them reads.

    Whoever owned the app before does not live any more, or has not lost anything. Raises LakeError where a table has
    taken what is gone, and has a checkpoint since.
    """
    plan = lake / _PLAN.format(app=app)
    heads = _planned(plan, lake)
    if heads is None:
        tails = {tail.name: tail for tail in _tails((*inputs, f"{LAYER}.ledger_{app}", f"{LAYER}.turns_{app}"), lake)}
        _settle(tails, inputs)
        heads = {name: tail.head for name, tail in tails.items() if tail.is_cut}
        heads |= {name: tail.head for name, tail in tails.items() if _torn_beside(tail.path, tail.base)}
        if not heads:
            plan.unlink(missing_ok=True)
            return
        guard()
        newest = {name: newest_version(folder_of(name, lake)) for name in heads}
        disk.put(plan, json.dumps({name: (head, newest[name]) for name, head in heads.items()}))
    for name, head in heads.items():
        guard()
        _cut(name, folder_of(name, lake), head)
    disk.sync(lake)
    plan.unlink()


def _planned(plan: Path, lake: Path) -> dict[str, int] | None:
    """What was to go when the machine died; None where nothing was, or a table has come further since."""
    try:
        found: dict[str, tuple[int, int | None]] = json.loads(plan.read_text())
    except FileNotFoundError:
        return None
    for name, (_, newest) in found.items():
        if (newest_version(folder_of(name, lake)) or 0) > (newest or 0):
            return None
    return {name: head for name, (head, _) in found.items()}


def _tails(names: Iterable[str], lake: Path) -> Iterator[Tail]:
    """Those of these tables, and of all beside them."""
    for name in names:
        own = folder_of(name, lake)
        for path in (own, *sorted(own.parent.glob(f"{own.name}__*"))):
            newest = newest_version(path)
            if newest is not None:
                yield Tail(name=f"{path.parent.name}.{path.name}", path=path, newest=newest)


def _settle(tails: Mapping[str, Tail], inputs: Mapping[str, Iterable[str]]) -> None:
    """Let go what has taken what is gone, until nothing more has."""
    going = True
    while going and any(tail.is_cut for tail in tails.values()):
        going = False
        for name, tail in tails.items():
            while tail.head > tail.base and _took_what_is_gone(tail, tails, inputs.get(name, ())):
                tail.head -= 1
                going = True
    for name, tail in tails.items():
        if tail.head >= 0 and _took_what_is_gone(tail, tails, inputs.get(name, ())):
            finding = "has taken what a power cut tore from what it reads, or from what is beside it, before its last"
            next_step = "Bring back a copy of the lake; is all of it on one file system?"
            raise LakeError(name, f"{finding} checkpoint", next_step)


def _took_what_is_gone(tail: Tail, tails: Mapping[str, Tail], inputs: Iterable[str]) -> bool:
    entry = tail.entry
    if entry is None:
        return False
    main, _, suffix = tail.name.partition("__")
    if suffix and main in tails and (entry.beside or 0) > tails[main].head and tails[main].is_cut:
        return True
    cut = {name: one for name, one in tails.items() if one.is_cut}
    beside = {f"{tail.name}__{one}": version for one, version in entry.sides.items()}
    if any(name in cut and version > cut[name].head for name, version in beside.items()):
        return True
    return any(taken > there for taken, there in _taken(entry.position, inputs, cut))


def _taken(position: Position, inputs: Iterable[str], cut: Mapping[str, Tail]) -> Iterator[tuple[int, int]]:
    """How far an entry's table has taken tables that were cut, and how far those go now.

    Another table of that name is not meant: one that was moved away had come to versions of its own.
    """
    for name, version in position.versions.items():
        source, _, copied = name.partition("@")  # copies of entries say of each that there ever was how far they are
        if source in cut and (copied == cut[source].made if copied else _is_meant(cut[source], position)):
            yield version, cut[source].head
    for name in inputs:
        if name in cut and name in position.batches and _is_meant(cut[name], position):
            there = cut[name].entry
            yield position.batches[name], 0 if there is None else there.ingest_seq


def _is_meant(source: Tail, position: Position) -> bool:
    """Whether a place is in this table, as far as that can be told: of one that is all gone its id is too."""
    return source.made is None or position.inputs.get(source.name, source.made) == source.made


def _cut(name: str, path: Path, head: int) -> None:
    """Put the commits after this one aside, the last one first, and forget checkpoints that are not whole."""
    folder, gone = path / "_delta_log", list[int]()
    (path / ASIDE).mkdir(exist_ok=True)
    for version in range(newest_version(path) or 0, head, -1):
        file = folder / f"{version:020d}.json"
        if file.exists():
            file.rename(path / ASIDE / f"{version:020d}.{uuid.uuid4().hex}.json")
            gone.append(version)
    for file in _torn_beside(path, _last_whole(path)):
        file.rename(path / ASIDE / f"{file.name}.{uuid.uuid4().hex}")
    if gone:
        which = f"version {head + 1}" if len(gone) == 1 else f"versions {head + 1} to {max(gone)}"
        log.warning(
            "%s: a power cut has torn %s, or what was taken there: put aside in %s. What came is read again",
            name, which, path / ASIDE,
        )  # fmt: skip


def _last_whole(path: Path) -> int:
    return next((version for version in reversed(checkpoints(path)) if is_readable(path, version)), -1)


def _torn_beside(path: Path, whole: int) -> list[Path]:
    """Files of checkpoints beyond the last one that is whole, and the word where that is, if it is not there.

    Without that word, everybody looks.
    """
    log, torn = path / "_delta_log", [version for version in checkpoints(path) if version > whole]
    found = [file for version in torn for file in log.glob(f"{version:020d}.checkpoint*")]
    with suppress(FileNotFoundError):
        try:
            is_there = json.loads((log / _HINT).read_text())["version"] <= whole
        except (ValueError, TypeError, KeyError):
            is_there = False
        if not is_there:
            found.append(log / _HINT)
    return found


def _files(actions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """Name and size of each file that a commit brought."""
    for action in actions:
        for kind in ("add", "cdc"):
            if kind in action:
                yield unquote(action[kind]["path"]), int(action[kind]["size"])


def _is_torn(file: Path, size: int) -> bool:
    """Whether a file of Parquet does not go to its end. One that is not there was deleted: its name was made first."""
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_size != size:
                return True
            opened.seek(-len(_MAGIC), os.SEEK_END)
            return opened.read() != _MAGIC
    except FileNotFoundError:
        return False
    except OSError:
        return True
