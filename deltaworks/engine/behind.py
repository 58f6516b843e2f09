"""Behind a number of the ledger: the command that lists its rows. No Spark here.

Where a row leaves no trace of its own (a copy, another table's row), the command computes from bronze and from what the
table kept. Where rows go up in others (changes of a key, groups), it lists the commits that the number is the sum of.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from string import Template

from deltaworks.catalog import Declared
from deltaworks.engine.entry import Entry
from deltaworks.words.keeping import Append, Raw
from deltaworks.words.lateness import Drop, SideOutput
from deltaworks.words.reading import Debezium, Json

NUMBERS = ("read", "taken", "superseded", "refused", "duplicate", "late", "not_mine", "filtered", "expired")


# Lines are short enough for a terminal. No double quote, dollar or backtick is left in them when the names are in: the
# SQL stands between a shell's double quotes as it is.
_ALL = Template("select * from $table")
_READ = Template("""select b.*
from $bronze b
where b._seq <= $upto""")
_TOPIC = Template("b.topic = '$topic'")
_CHANGE = Template("""coalesce(try(
  (decode(b.value)::json -> 'source' ->> 'schema') = '$schema'
  and (decode(b.value)::json -> 'source' ->> 'table') = '$name'
), false)""")
_PARTITION = Template("""coalesce(try(
  (decode(b.value)::json -> 'source' ->> 'schema') || '.'
  || (decode(b.value)::json -> 'source' ->> 'table') glob '$names'
), false)""")
_NOT_ASIDE = Template("""not exists (
  select 1 from ${table}__quarantine q
  where q.topic = b.topic and q.partition = b.partition
  and q.offset = b.offset)""")
_NOT_THERE = Template("""not exists (
  select 1 from $table s
  where s._source = b.topic || '/'
  || lpad(b.partition::varchar, 5, '0') || '/'
  || lpad(b.offset::varchar, 20, '0'))""")
_DROPPED = Template("""select *
from $source
where _late_by > $after
and _seq <= $upto""")
_COMMITS = Template("""select version, committed_at, ingest_seq,
  $number
from ops.ledger
where table_name = '$table'
and $number > 0
order by version""")


@dataclass(frozen=True, kw_only=True)
class Behind:
    """One number, and how to see what is behind it."""

    number: str
    count: int
    lists: str
    """Of what the command gives one line each: "rows"; "commits", whose column of that name adds up to it; "gaps"."""
    command: str


def behind(declared: Declared, entry: Entry, *, rows: int) -> list[Behind]:
    """Each number of a table that is not zero, by its last entry and the rows that are there."""
    totals = entry.totals
    found = [
        Behind(number=number, count=count, lists=lists, command=command)
        for number in NUMBERS
        if (count := int(getattr(totals, number)))
        for lists, command in [_command(declared, entry, number)]
    ]
    if rows:
        command = _asked(_ALL.substitute(table=declared.name))
        found.insert(0, Behind(number="rows", count=rows, lists="rows", command=command))
    return [*found, *_gaps(declared, entry)]


def _gaps(declared: Declared, entry: Entry) -> Iterator[Behind]:
    position = entry.position
    for topic in declared.topics:
        read = sum(
            upto - position.first.get(topic, {}).get(part, 0) for part, upto in position.offsets.get(topic, {}).items()
        )
        gaps = read - sum(position.rows.get(topic, {}).values())  # those that are lost among them
        if gaps:
            yield Behind(number="gaps", count=gaps, lists="gaps", command=f"deltaworks ledger --gaps {topic}")


def _command(declared: Declared, entry: Entry, number: str) -> tuple[str, str]:
    if number == "refused":
        return "rows", f"deltaworks quarantine show {declared.name}"
    sql = dict(_rows(declared, entry)).get(number)
    if sql is None:
        return "commits", _asked(_COMMITS.substitute(table=declared.name, number=number))
    return "rows", _asked(sql)


def _asked(sql: str) -> str:
    return f'deltaworks sql "{sql}"'


def _rows(declared: Declared, entry: Entry) -> Iterator[tuple[str, str]]:
    """SQL by number, where the rows can be told."""
    kept, reads = declared.table.kept_as, declared.table.reads
    if isinstance(kept, Raw):
        yield from dict.fromkeys(("read", "taken"), _ALL.substitute(table=declared.name)).items()
    elif isinstance(reads, Json | Debezium):
        yield from _over_bronze(declared, entry, reads)
    else:
        yield from _over_table(declared, entry)


def _over_bronze(declared: Declared, entry: Entry, reads: Json | Debezium) -> Iterator[tuple[str, str]]:
    read = _READ.substitute(bronze=reads.bronze, upto=entry.position.batches.get(reads.bronze, 0))
    mine = _mine(reads)
    not_aside = _NOT_ASIDE.substitute(table=declared.name)
    yield "read", read
    yield "not_mine", f"{read}\nand not ({mine})\nand {not_aside}"
    if isinstance(declared.table.kept_as, Append) and isinstance(reads, Json):
        yield "taken", _ALL.substitute(table=declared.name)
        nowhere = [name for name in ("duplicate", "filtered", "expired") if getattr(entry.totals, name)]
        if nowhere in (["duplicate"], ["filtered"]):  # where there are several, a row does not tell which it is
            not_there = _NOT_THERE.substitute(table=declared.name)
            yield nowhere[0], f"{read}\nand {mine}\nand {not_aside}\nand {not_there}"


def _mine(reads: Json | Debezium) -> str:
    """Whether a record of bronze is the table's; bytes of any kind are judged, none fails."""
    if isinstance(reads, Json):
        return _TOPIC.substitute(topic=reads.topic)
    schema, name = reads.table.split(".")
    own = _CHANGE.substitute(schema=schema, name=name)
    if reads.partitions is None:
        return own
    return f"({own}\nor {_PARTITION.substitute(names=reads.partitions)})"


def _over_table(declared: Declared, entry: Entry) -> Iterator[tuple[str, str]]:
    """Late rows tell themselves; of the changes that a view has seen, and of groups, only commits tell."""
    match declared.table.late:
        case SideOutput():
            yield "late", _ALL.substitute(table=f"{declared.name}__late")
        case Drop(after=after):
            micros = after // timedelta(microseconds=1)
            yield "late", _DROPPED.substitute(source=declared.inputs[0], after=micros, upto=entry.ingest_seq)
