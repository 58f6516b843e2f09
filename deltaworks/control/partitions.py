"""Partitions of tables that are complete: what scheduled DAGs wait for, once judged where that is wanted."""

import dataclasses
from datetime import datetime
from typing import Literal

from deltaworks.control.database import Database, Shape

PartitionVerdict = Literal["passed", "failed", "unknown", "released"]
"""What a validation said of a day; `released`: a person lets it go whatever that said."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClosedPartition:
    """A partition (text that sorts in time, such as `2026-11-21`) and the table's version that completed it.

    `verdict` is None until it was judged, which not every table's partitions are.
    """

    table_name: str
    partition: str
    closed_at: datetime
    version: int
    announced_at: datetime | None = None
    verdict: PartitionVerdict | None = None
    reason: str | None = None


_CLOSED = Shape(ClosedPartition, "table_name, partition, closed_at, version, announced_at, verdict, reason")


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

    def unannounced_partitions(self, table: str, *, well: bool = False) -> list[ClosedPartition]:
        """List the table's complete partitions that nobody has announced yet, in order.

        `well`: only those that passed their validation, or were released.
        """
        query = """
            select {columns} from closed_partitions
            where table_name = %(table)s and announced_at is null
            and (not %(well)s or verdict in ('passed', 'released')) order by partition collate "C" """
        return self._all(query, {"table": table, "well": well}, _CLOSED)

    def announce_partition(self, table: str, partition: str) -> None:
        """Note that a complete partition has been announced; the first note stays."""
        note = """
            update closed_partitions set announced_at = coalesce(announced_at, now())
            where table_name = %(table)s and partition = %(partition)s returning {columns}"""
        self._all(note, {"table": table, "partition": partition}, _CLOSED)

    def unasked_partitions(self, table: str) -> list[ClosedPartition]:
        """List the table's complete partitions that no validation was asked about, nor anybody told of, in order."""
        query = """
            select {columns} from closed_partitions
            where table_name = %(table)s and asked_at is null and announced_at is null
            order by partition collate "C" """
        return self._all(query, {"table": table}, _CLOSED)

    def ask_partition(self, table: str, partition: str) -> None:
        """Note that its validation was asked about a partition; the first note stays."""
        note = """
            update closed_partitions set asked_at = coalesce(asked_at, now())
            where table_name = %(table)s and partition = %(partition)s returning {columns}"""
        self._all(note, {"table": table, "partition": partition}, _CLOSED)

    def judge_partition(self, table: str, partition: str, verdict: PartitionVerdict, *, reason: str) -> bool:
        """Note what is said of a partition, in place of what was; False where there is no such closed partition."""
        note = """
            update closed_partitions set verdict = %(verdict)s, reason = %(reason)s, judged_at = now()
            where table_name = %(table)s and partition = %(partition)s returning {columns}"""
        values = {"table": table, "partition": partition, "verdict": verdict, "reason": reason}
        return bool(self._all(note, values, _CLOSED))

    def held_partitions(self) -> list[ClosedPartition]:
        """List the partitions of all tables that are held back, in order: by their verdict, or as there is none yet."""
        query = """
            select {columns} from closed_partitions
            where announced_at is null
            and (verdict in ('failed', 'unknown') or (asked_at is not null and verdict is null))
            order by table_name, partition collate "C" """
        return self._all(query, {}, _CLOSED)
