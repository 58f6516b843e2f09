"""I1: what was read is what went somewhere, in every commit and in the sum, and what was added is there."""

from collections.abc import Iterator
from dataclasses import asdict, fields, replace

from deltaworks.catalog import Declared
from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.checker.picture import Held, Picture, named
from deltaworks.engine.copies import copied
from deltaworks.engine.entry import Counts, Entry, Position
from deltaworks.words.keeping import Aggregate, Append, History, Raw

_OWNER = "Find out who else writes the lake; bring the table back, or rebuild it"
_DEFECT = "Keep the lake and report it: this is a defect of the engine or a table changed by hand"


def conservation(picture: Picture) -> Iterator[Finding]:
    """Look at every table's commits, then at its rows."""
    for held in picture.tables.values():
        yield from _history(held)
    for declared, held in picture:
        if isinstance(declared.table.kept_as, Raw):
            yield from _offsets(picture, declared, held)
        if isinstance(declared.table.kept_as, Raw | Append) and held.rows() != held.entry.totals.taken:
            yield _found(held, f"{held.entry.totals.taken} rows taken, {held.rows()} present", _DEFECT)
        if isinstance(declared.table.kept_as, History):
            yield from _changes(picture, held, declared.table.kept_as)
        yield from _batches(picture, held)
        if isinstance(declared.table.kept_as, Aggregate):  # a view's position is beyond counting: it reads changes
            yield from _versions(picture, held)


def _changes(picture: Picture, held: Held, kept: History) -> Iterator[Finding]:
    """Each change that a history took is a state in it or an end beside it."""
    ends, upto = picture.beside(held.name, "deleted"), held.entry.ingest_seq
    if ends is not None:
        told = f"_seq <= {upto}"
        if kept.by is None:  # no changes of their own are begins of snapshots, not streamed, and keys that a row left
            told += " and split_part(_source, '/', 3) = '1' and _source not like '%/left'"
        there = picture.count(f"select count(*) from {named(ends.name)} where {told}")  # noqa: S608  # quoted
        if held.rows() + there != held.entry.totals.taken:
            told = f"{held.entry.totals.taken} changes taken, {held.rows()} states and {there} ends present"
            yield _found(held, told, _DEFECT)


def _history(held: Held) -> Iterator[Finding]:
    """Each entry is balanced, follows the one before, and goes nowhere back."""
    later: Entry | None = None
    version = held.version + 1
    for at, entry, operation in _entries(held):
        if entry is None:
            yield _found(held, f"version {at} ({operation}) was committed by somebody else", _OWNER)
            return
        if not entry.counts.balanced:
            yield _found(held, f"version {at}: {_unbalanced(entry.counts)}", _DEFECT)
        if later is not None and at == version - 1:
            yield from (_found(held, f"version {version}: {what}", _DEFECT) for what in _steps(entry, later))
        elif later is not None:
            yield _found(held, f"versions {at + 1} to {version - 1} are in no log and not in ops.ledger", _OWNER)
        later, version = entry, at
    if later is not None and version == 0 and later.totals != later.counts:
        yield _found(held, "version 0: its totals are not its counts", _DEFECT)


def _entries(held: Held) -> Iterator[tuple[int, Entry | None, str]]:
    """Version, entry and operation of each commit, newest first: of the log, then of the copies of older ones."""
    version = held.version + 1
    for commit in held.commits():
        version = commit.version
        yield version, commit.entry, commit.operation
    for copy in copied(held.path, before=version):
        yield copy.version, copy.entry, "of long ago"


def _steps(before: Entry, after: Entry) -> Iterator[str]:
    """What is wrong between two entries that follow each other."""
    expected, told = asdict(before.totals + after.counts), asdict(after.totals)
    for name in expected:
        if expected[name] != told[name]:
            yield f"total {name} is {told[name]}, the commits so far give {expected[name]}"
    if after.epoch < before.epoch:
        yield f"epoch {after.epoch} after {before.epoch}"
    if after.kind in ("redo", "publish"):  # back to where the main table stands, or to the place of what came in
        return
    if after.ingest_seq < before.ingest_seq:
        yield f"ingest batch {after.ingest_seq} after {before.ingest_seq}"
    came, went = _numbers(before.position), _numbers(after.position)
    if after.kind == "revise" or after.beside is not None:  # what is beside a table says where that stands
        came.pop(("mark",), None)
        if (before.passed or 0) > (after.passed or 0):
            yield f"what is over fell from {before.passed} to {after.passed}"
    for place, number in came.items():
        if went.get(place, -1) < number and place[0] != "first":
            yield f"position {'/'.join(place)} fell from {number} to {went.get(place)}"


def _numbers(position: Position) -> dict[tuple[str, ...], int]:
    """Each number of a position under its path that says how far it came: not whose commits those were."""
    found: dict[tuple[str, ...], int] = {}

    def walk(place: tuple[str, ...], value: object) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk((*place, str(name)), inner)
        elif isinstance(value, int) and not isinstance(value, bool):
            found[place] = value

    walk((), asdict(replace(position, epochs={}, strays_most=None)))
    return found


def _offsets(picture: Picture, declared: Declared, held: Held) -> Iterator[Finding]:
    """Per topic and partition: rows, first and last offset against the position."""
    position = held.entry.position
    sql = f"""select topic, "partition"::varchar, count(*), min("offset"), max("offset")
        from {named(held.name)} group by all"""  # noqa: S608  # our own table's name, quoted
    there = {(topic, part): numbers for topic, part, *numbers in picture.connection.execute(sql).fetchall()}
    told = {(topic, part) for topic, parts in position.offsets.items() for part in parts}
    for topic, part in sorted(told | set(there)):
        rows, low, high = there.get((topic, part), (0, 0, 0))
        upto = position.offsets.get(topic, {}).get(part, 0)
        first = position.first.get(topic, {}).get(part, 0)
        counted = position.rows.get(topic, {}).get(part, 0)
        lost = position.lost.get(topic, {}).get(part, 0)
        place = f"{declared.name} {topic}/{part}"
        if rows != counted:
            yield Finding("I1", place, f"{counted} rows kept by the ledger, {rows} present", _DEFECT)
        if rows and (high >= upto or low < first):
            yield Finding("I1", place, f"offsets {low} to {high} present, read were {first} to {upto - 1}", _DEFECT)
        if upto - first - lost < rows:
            yield Finding("I1", place, f"{rows} rows from {upto - first - lost} offsets", _DEFECT)
        if lost:
            yield Finding("I1", place, f"{lost} offsets were gone before they were read", "Raise retention_hours")


def _batches(picture: Picture, held: Held) -> Iterator[Finding]:
    """What a table over bronze read is what bronze has, up to its position."""
    totals, position = held.entry.totals, held.entry.position
    for name, upto in position.batches.items():
        if name not in picture.tables:
            yield _found(held, f"its input {name} is gone", "Bring it back")
            continue
        has = picture.count(f"select count(*) from {named(name)} where _seq <= {upto}")  # noqa: S608  # a number
        if has != totals.read:
            yield _found(held, f"{totals.read} rows read, {name} has {has} up to ingest batch {upto}", _DEFECT)


def _versions(picture: Picture, held: Held) -> Iterator[Finding]:
    """What an aggregate read is what its input had in the version that it has taken, if that can still be opened."""
    for name, upto in held.entry.position.versions.items():
        source = picture.tables.get(name)
        had = None if source is None else source.rows_at(upto)
        if source is None:
            yield _found(held, f"its input {name} is gone", "Bring it back")
        elif had is not None and had + (gone := source.entry_at(upto).totals.expired) != held.entry.totals.read:
            expired = f", and {gone} had expired" if gone else ""
            yield _found(
                held, f"{held.entry.totals.read} rows read, {name} has {had} in version {upto}{expired}", _DEFECT
            )


def _unbalanced(counts: Counts) -> str:
    parts = {f.name: getattr(counts, f.name) for f in fields(Counts)}
    read = parts.pop("read")
    return f"{read} rows read, {sum(parts.values())} went somewhere"


def _found(held: Held, finding: str, next_step: str) -> Finding:
    return Finding("I1", held.name, finding, next_step)
