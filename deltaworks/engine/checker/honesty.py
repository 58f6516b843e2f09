"""I7: what was not taken is counted once and can be listed; and nothing is there that did not come in."""

from collections.abc import Iterator
from datetime import timedelta

from deltaworks.catalog import Declared
from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.checker.picture import Held, Picture, named
from deltaworks.engine.datasets import dataset_of
from deltaworks.words.keeping import Aggregate, Append, Stateful, View
from deltaworks.words.lateness import Drop, SideOutput
from deltaworks.words.reading import Debezium, Json

_STEP = "Keep the lake and report it; the rows are in bronze"
_PLACE = "topic || '/' || lpad(\"partition\"::varchar, 5, '0') || '/' || lpad(\"offset\"::varchar, 20, '0')"
"""Coordinates in Kafka as `_source` of a table of events writes them."""


def honesty(picture: Picture) -> Iterator[Finding]:
    """Look at every table that refuses rows or finds them late."""
    for declared, held in picture:
        if isinstance(declared.table.reads, Json | Debezium):
            yield from _refused(picture, declared, held)
        if isinstance(declared.table.reads, Json) and isinstance(declared.table.kept_as, Append):
            yield from _events(picture, declared, held)
        if isinstance(declared.table.kept_as, Aggregate | Stateful | View):
            yield from _unfit(picture, held)
        if isinstance(declared.table.late, Drop | SideOutput):
            yield from _late(picture, declared, held)


def _refused(picture: Picture, declared: Declared, held: Held) -> Iterator[Finding]:
    """As many rows in quarantine as were refused, each with the bytes that bronze has."""
    refused, upto = held.entry.totals.refused, _upto(declared, held)
    side = picture.beside(held.name, "quarantine")
    if side is None:
        if refused:
            yield Finding("I7", held.name, f"{refused} rows refused, its quarantine is gone", "Bring it back")
        return
    aside = f"(select * from {named(side.name)} where {_aside(side, upto)})"  # noqa: S608  # our own table's name, quoted
    there = picture.count(f"select count(*) from {aside}")  # noqa: S608  # the line above
    if there != refused:
        yield Finding("I7", held.name, f"{refused} rows refused, {there} in quarantine", _STEP)
    bronze = declared.inputs[0]
    if bronze in picture.tables:
        same = 'b.topic = q.topic and b."partition" = q."partition" and b."offset" = q."offset"'
        alien = picture.count(
            f"select count(*) from {aside} q left join {named(bronze)} b on {same} "  # noqa: S608  # quoted
            "where b.topic is null or b.value is distinct from q.value"
        )
        if alien:
            yield Finding("I7", side.name, f"{alien} rows are not as {bronze} has them", _STEP)


def _unfit(picture: Picture, held: Held) -> Iterator[Finding]:
    """As much left out as was refused, each once, and rows that the input has."""
    refused, unfit = held.entry.totals.refused, held.entry.position.unfit
    if len({(one.of, one.place) for one in unfit}) != refused:
        yield Finding("I7", held.name, f"{refused} rows refused, its position names {len(unfit)}", _STEP)
    inputs = {one.of for one in unfit} & picture.tables.keys() - {held.name}  # a view names its own keys too
    for of in sorted(name for name in inputs if not picture.catalog[name].keys):  # a row with a key may go
        places = ", ".join("'" + one.place.replace("'", "''") + "'" for one in unfit if one.of == of)
        told = sum(one.of == of for one in unfit)
        there = picture.count(f"select count(*) from {named(of)} where _source in ({places})")  # noqa: S608  # quoted
        if there != told:
            yield Finding("I7", held.name, f"{told} rows of {of} are left out, {there} are there", _STEP)


def _aside(side: Held, upto: int) -> str:
    """Rows in quarantine while the table is at this ingest batch: what it has taken may not be released yet."""
    claimed = f" and (_claimed is null or _claimed > {upto})" if "_claimed" in side.schema.names else ""
    return f"_seq <= {upto}{claimed}"


def _events(picture: Picture, declared: Declared, held: Held) -> Iterator[Finding]:
    """Each row of bronze is in the table, in quarantine, counted as a copy or as filtered, or not of its topic."""
    reads, bronze, side = declared.table.reads, declared.inputs[0], picture.beside(held.name, "quarantine")
    assert isinstance(reads, Json)
    if bronze not in picture.tables or side is None:
        return
    totals, upto = held.entry.totals, _upto(declared, held)
    topic = reads.topic.replace("'", "''")
    came = f"select {_PLACE} as place from {named(bronze)} where topic = '{topic}' and _seq <= {upto}"  # noqa: S608  # quoted
    taken = f"select _source as place from {named(held.name)} where _seq <= {upto}"  # noqa: S608  # quoted
    aside = f"select {_PLACE} as place from {named(side.name)} where {_aside(side, upto)}"  # noqa: S608  # quoted
    both = picture.count(f"select count(*) from ({taken}) join ({aside}) using (place)")  # noqa: S608  # the lines above
    if both:
        yield Finding("I7", held.name, f"{both} rows are in the table and in its quarantine", _STEP)
    alien = picture.count(f"select count(*) from ({taken}) anti join ({came}) using (place)")  # noqa: S608  # the lines above
    if alien:
        yield Finding("I7", held.name, f"{alien} rows of the table are not in {bronze}", _STEP)
    nowhere = picture.count(
        f"select count(*) from ({came}) anti join ({taken} union all {aside}) using (place)"  # noqa: S608  # the lines above
    )
    if nowhere != totals.duplicate + totals.filtered + totals.expired:
        gone = f", {totals.filtered} filtered" if totals.filtered else ""
        gone += f", {totals.expired} have expired" if totals.expired else ""
        told = f"{nowhere} rows of {bronze} are in neither table nor quarantine, {totals.duplicate} were copies{gone}"
        yield Finding("I7", held.name, told, _STEP)
    others = totals.read - picture.count(f"select count(*) from ({came})")  # noqa: S608  # the lines above
    if others != totals.not_mine:
        told = f"{totals.not_mine} rows counted as another table's, {others} are of another topic"
        yield Finding("I7", held.name, told, _STEP)


def _late(picture: Picture, declared: Declared, held: Held) -> Iterator[Finding]:
    """As many rows counted late as the inputs have beyond the bound, and those set aside where that is asked."""
    policy, counted = declared.table.late, held.entry.totals.late
    assert isinstance(policy, Drop | SideOutput)
    upto = held.entry.position.versions.get(declared.inputs[0])
    uses, used = held.entry.position.applied or (0, 0)
    late = [_beyond(picture, held, name, policy) for name in declared.inputs]
    # of those that have expired nobody knows any more how late they were
    gone = sum(picture.tables[name].entry.totals.expired for name in declared.inputs if name in picture.tables)
    if None not in late and not counted + used - gone <= (found := sum(filter(None, late))) <= counted + used:
        told = f"{counted} rows counted late, {used} used after all, {', '.join(declared.inputs)}: {found}"
        yield Finding("I7", held.name, told, _STEP)
    side = picture.beside(held.name, "late")
    if isinstance(policy, SideOutput) and side is not None:
        there = picture.count(f"select count(*) from {named(side.name)} where _version <= {upto or 0}")  # noqa: S608  # quoted
        if there != counted + used:
            yield Finding("I7", held.name, f"{counted} rows counted late, {used} used, {there} set aside", _STEP)
        claimed = 0
        if "_claimed" in side.schema.names:
            claimed = picture.count(f"select count(*) from {named(side.name)} where _claimed <= {uses}")  # noqa: S608  # quoted
        if claimed != used:
            yield Finding("I7", held.name, f"{used} late rows used after all, {claimed} say so", _STEP)


def _beyond(picture: Picture, held: Held, source: str, policy: Drop | SideOutput) -> int | None:
    """How many rows of an input, as far as it was taken, are later than the bound; None if that cannot be told."""
    upto = held.entry.position.versions.get(source)
    if upto is None:
        return 0
    older = picture.tables[source].at(upto) if source in picture.tables else None
    if older is None or not picture.tables[source].is_whole(older):
        return None
    picture.connection.register("as taken", dataset_of(older))
    bound = policy.after // timedelta(microseconds=1)
    late = picture.count(f'select count(*) from "as taken" where _late_by > {bound}')  # noqa: S608  # a number
    picture.connection.unregister("as taken")
    return late


def _upto(declared: Declared, held: Held) -> int:
    """The last ingest batch that the table has taken in full."""
    return held.entry.position.batches.get(declared.inputs[0], 0)
