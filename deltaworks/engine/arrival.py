"""Read your own writes: wait until a table contains the record that you sent. No Spark here.

Whoever sends a record learns its topic, partition and offset from the broker's receipt. A table contains it as soon as
everything that leads from the topic to the table has taken it.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import deltalake

from deltaworks.engine.datasets import dataset_of, ds
from deltaworks.engine.log import first_version
from deltaworks.engine.through import Lineage, Through
from deltaworks.errors import LakeError, NotArrivedError

POLL_SECONDS = 0.1
"""Nobody tells of a commit, so it is looked for: a look reads the few log files that are new since the last one."""


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """The first version seen that contains the record."""

    table: str
    version: int
    topic: str
    partition: int
    offset: int
    waited_seconds: float


def wait_for(lake: Path, *, table: str, topic: str, partition: int, offset: int, timeout_seconds: float) -> Arrival:
    """Wait until the table contains the record.

    Raises NotArrivedError when the time is over, with what still lacks the record, and at once when a table on the way
    has refused it.
    """
    lineage, began = Lineage(lake), time.monotonic()
    record = f"{topic}/{partition}/{offset}"
    while True:
        found, missing = _look(lineage, table)
        if found is not None and found.contains(topic, partition, offset):
            _not_refused(lineage, table, topic, partition, offset)
            missing = _on_its_way(lineage, table)
        if found is not None and missing is None and found.contains(topic, partition, offset):
            return Arrival(
                table=table, version=found.version, topic=topic, partition=partition, offset=offset,
                waited_seconds=time.monotonic() - began,
            )  # fmt: skip
        if time.monotonic() - began >= timeout_seconds:
            why = missing or _lacking(lineage, table, topic, partition, offset)
            raise NotArrivedError(f"{record} in {table}", f"not there after {timeout_seconds:g} s: {why}", _STEP)
        time.sleep(min(POLL_SECONDS, max(0.0, timeout_seconds - (time.monotonic() - began))))


_STEP = 'Look at "deltaworks app status"'


def _look(lineage: Lineage, table: str) -> tuple[Through | None, str | None]:
    """What the table contains now; None, and why not, while it or an input was never committed to."""
    try:
        return lineage.processed_through(table), None
    except LakeError as error:
        return None, f"{error.place} {error.finding}"


def _lacking(lineage: Lineage, table: str, topic: str, partition: int, offset: int) -> str:
    """Which table of the way is the first that lacks the record: the one that the others wait for."""
    why = f"it has taken nothing yet of topic {topic} partition {partition}"
    for name in dict.fromkeys(lineage.below(table)):
        through = lineage.processed_through(name)
        if through.unknown:
            return "; ".join(through.unknown)
        upto = through.offsets.get(topic, {}).get(str(partition))
        if upto is not None and upto <= offset:
            why = f"{name} contains the offsets below {upto}"  # the last one said is the lowest
    return why


def _on_its_way(lineage: Lineage, table: str) -> str | None:
    """Which table has not taken rows that were refused by an input once: the record may be among them."""
    for name in dict.fromkeys(lineage.below(table)):
        entry = lineage.entry(name, lineage.newest(name))
        for source, taken in entry.position.versions.items() if entry is not None else ():
            oldest = first_version(lineage.path(source)) or 0  # who has taken less takes all that is there
            for version in range(lineage.newest(source), max(lineage.as_good_as(source, taken), oldest - 1), -1):
                commit = lineage.entry(source, version)
                if commit is not None and commit.kind == "replay":
                    return f"{name} has not taken what {source} took out of quarantine"
    return None


def _not_refused(lineage: Lineage, table: str, topic: str, partition: int, offset: int) -> None:
    where = (ds.field("topic") == topic) & (ds.field("partition") == partition) & (ds.field("offset") == offset)
    for name in dict.fromkeys(lineage.below(table)):
        aside = lineage.path(f"{name}__quarantine")
        if not deltalake.DeltaTable.is_deltatable(str(aside)):
            continue
        rows = dataset_of(deltalake.DeltaTable(str(aside))).to_table(columns=["reason"], filter=where)
        if rows.num_rows:
            finding = f"read, but refused by {name}: {rows['reason'][0].as_py()}"
            raise NotArrivedError(
                f"{topic}/{partition}/{offset} in {table}",
                finding,
                'Send it as the table wants it, or mend the rule and run "deltaworks quarantine replay"',
            )
