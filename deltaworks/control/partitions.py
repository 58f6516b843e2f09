"""Partitions of tables that are complete: what a scheduled DAG waits for."""

import dataclasses
from datetime import datetime

from deltaworks.control.database import Database, Shape


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClosedPartition:
    """A partition (text that sorts in time, such as `2026-11-21`) and the table's version that completed it."""

    table_name: str
    partition: str
    closed_at: datetime
    version: int
    announced_at: datetime | None = None


_CLOSED = Shape(ClosedPartition, "table_name, partition, closed_at, version, announced_at")


class ClosedPartitions(Database):
    """Which partitions of which tables are complete."""

    def close_partition(self, table: str, partition: str, version: int) -> None:
        """Note that a partition is complete; the first note stays."""
        note = """
            insert into closed_partitions (table_name, partition, version)
            values (%(table)s, %(partition)s, %(version)s) on conflict do nothing returning {columns}"""
        self._all(note, {"table": table, "partition": partition, "version": version}, _CLOSED)

    def closed_partitions(self, table: str, after: str | None = None) -> list[ClosedPartition]:
        """List the table's complete partitions in order, those after the partition `after` if given."""
        query = """
            select {columns} from closed_partitions where table_name = %(table)s
            and (%(after)s::text is null or partition > %(after)s collate "C") order by partition collate "C" """
        return self._all(query, {"table": table, "after": after}, _CLOSED)

    def unannounced_partitions(self, table: str) -> list[ClosedPartition]:
        """List the table's complete partitions that nobody has announced yet, in order."""
        query = """
            select {columns} from closed_partitions
            where table_name = %(table)s and announced_at is null order by partition collate "C" """
        return self._all(query, {"table": table}, _CLOSED)

    def announce_partition(self, table: str, partition: str) -> None:
        """Note that a complete partition has been announced; the first note stays."""
        note = """
            update closed_partitions set announced_at = coalesce(announced_at, now())
            where table_name = %(table)s and partition = %(partition)s returning {columns}"""
        self._all(note, {"table": table, "partition": partition}, _CLOSED)
