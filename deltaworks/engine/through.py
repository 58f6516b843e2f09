"""Processed through: which offsets of the topics a version of a table contains. No Spark here.

A table over tables says which versions of its inputs it has taken, a table over bronze which ingest batch, and bronze
which offsets: so the answer is a walk down the entries. It needs the log files of the versions on its way, or their
copies in `ops.ledger`; below that, bronze's rows still tell which offsets an ingest batch ended with.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import deltalake

from deltaworks.engine.copies import copied, newest_copied
from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.entry import Entry, Offsets
from deltaworks.engine.folders import folder_of
from deltaworks.engine.log import Logged, first_version, newest_version, read_log
from deltaworks.errors import LakeError

_LOGGED_MAX = 10_000
"""So many log files are remembered, a few hundred bytes each."""


@dataclass(frozen=True, kw_only=True)
class Through:
    """What a version contains: per topic and partition every offset below the one that stands here.

    `unknown` says of which inputs it can no longer be told; their topics are left out.
    """

    table: str
    version: int
    offsets: Offsets = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    def contains(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the record at that offset was read by everything that leads to the table."""
        return self.offsets.get(topic, {}).get(str(partition), 0) > offset


class Lineage:
    """Walks from versions of tables down to offsets. What a log file says never changes: it is read once."""

    def __init__(self, lake: Path) -> None:
        """Nothing is read yet."""
        self.lake = lake
        self._newest: dict[str, int] = {}
        self._logged: dict[tuple[str, int], Logged] = {}
        self._copies_read: dict[tuple[str, int], Entry] = {}
        self._batches: dict[tuple[str, int], Offsets] = {}

    def processed_through(self, table: str, version: int | None = None) -> Through:
        """What this version contains (None: the newest); raises LakeError for a table that is not there."""
        version = self.newest(table) if version is None else version
        offsets, unknown = self._at(table, version)
        return Through(table=table, version=version, offsets=offsets, unknown=tuple(sorted(set(unknown))))

    def newest(self, table: str) -> int:
        """The newest version; asking again costs little."""
        found = newest_version(self.path(table), self._newest.get(table, -1))
        if found is None:
            raise LakeError(table, "has no commit yet", "Start its app")
        self._newest[table] = found
        return found

    def path(self, table: str) -> Path:
        """Folder of a table."""
        return folder_of(table, self.lake)

    def entry(self, table: str, version: int) -> Entry | None:
        """The entry of a version, from the log or from its copy; None if neither has it."""
        logged = self._log(table, version)
        if logged is not None:
            return logged.entry
        if (table, version) not in self._copies_read:
            found = newest_copied(self.path(table), ds.field("version") == version)
            if found is None:  # it may be copied yet
                return None
            self._copies_read[table, version] = found
        return self._copies_read[table, version]

    def entries(self, table: str) -> Iterator[Entry]:
        """Every entry of a table that is known, newest first."""
        yield from (logged.entry for logged in self.commits(table) if logged.entry is not None)

    def commits(self, table: str) -> Iterator[Logged]:
        """Every commit of a table that is known, newest first: those of its log, then the copies of older ones."""
        folder, version = self.path(table), self.newest(table)
        while (logged := read_log(folder, version)) is not None:
            yield logged
            version -= 1
        yield from copied(folder, before=version + 1)

    def below(self, table: str) -> Iterator[str]:
        """The table and every table that it was made from, by the newest entries."""
        yield table
        entry = self.entry(table, self.newest(table))
        position = None if entry is None else entry.position
        for name in () if position is None else (*position.batches, *position.versions):
            yield from self.below(name)

    def _at(self, table: str, version: int) -> tuple[Offsets, list[str]]:
        entry = self.entry(table, version)
        if entry is None:
            return {}, [f"{table} version {version}: neither its log nor ops.ledger goes back so far"]
        position, unknown = entry.position, list[str]()
        if position.offsets:
            return position.offsets, []
        ways = [self._batch(bronze, seq) for bronze, seq in position.batches.items()]
        for source, taken in position.versions.items():
            offsets, missing = self._at(source, self.as_good_as(source, taken))
            unknown += missing
            ways += [] if missing and not offsets else [offsets]
        return _common(ways), unknown

    def as_good_as(self, table: str, version: int) -> int:
        """The last version with the same rows: who has taken this one lacks nothing of that one."""
        while (after := self._log(table, version + 1)) is not None and after.entry is not None and not after.changes:
            version += 1
        return version

    def _batch(self, bronze: str, seq: int) -> Offsets:
        """Next offsets after an ingest batch."""
        if (bronze, seq) not in self._batches:
            entry = self._of_batch(bronze, seq)
            self._batches[bronze, seq] = self._from_rows(bronze, seq) if entry is None else entry.position.offsets
        return self._batches[bronze, seq]

    def _of_batch(self, bronze: str, seq: int) -> Entry | None:
        """An entry of the ingest batch: batches rise with versions, so it is looked for by halves."""
        high, low = self.newest(bronze), first_version(self.path(bronze)) or 0
        while low <= high:
            # the newest version first: who waits asks for it
            middle = high if high == self._newest[bronze] else (low + high) // 2
            found = self.entry(bronze, middle)
            if found is None:
                return None
            if found.ingest_seq == seq:
                return found
            low, high = (middle + 1, high) if found.ingest_seq < seq else (low, middle - 1)
        return newest_copied(self.path(bronze), ds.field("ingest_seq") == seq)

    def _from_rows(self, bronze: str, seq: int) -> Offsets:
        """Where the rows of the ingest batches up to this one end: exact, and slow in a large table."""
        data = dataset_of(deltalake.DeltaTable(str(self.path(bronze))))
        rows = data.to_table(columns=["topic", "partition", "offset"], filter=ds.field("_seq") <= seq)
        ends = rows.group_by(["topic", "partition"]).aggregate([("offset", "max")])
        offsets: dict[str, dict[str, int]] = {}
        for end in ends.to_pylist():
            offsets.setdefault(end["topic"], {})[str(end["partition"])] = end["offset_max"] + 1
        return offsets

    def _log(self, table: str, version: int) -> Logged | None:
        key = (table, version)
        if key not in self._logged:
            found = read_log(self.path(table), version)
            if found is None:
                return None
            if len(self._logged) >= _LOGGED_MAX:
                self._logged.clear()
            self._logged[key] = found
        return self._logged[key]


def _common(ways: Iterable[Offsets]) -> dict[str, dict[str, int]]:
    """What has come by all ways: of a topic on several ways, the partitions that all know, as far as the last is."""
    return reduce(_both, [{topic: dict(parts) for topic, parts in way.items()} for way in ways] or [{}])


def _both(one: Mapping[str, Mapping[str, int]], other: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    merged = {
        topic: dict(parts) for topic, parts in [*one.items(), *other.items()] if topic not in one or topic not in other
    }
    for topic in one.keys() & other.keys():
        parts = one[topic].keys() & other[topic].keys()
        merged[topic] = {part: min(one[topic][part], other[topic][part]) for part in parts}
    return merged
