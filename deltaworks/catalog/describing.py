"""Everything that a table declares, as plain values for people and programs."""

from datetime import timedelta

from deltaworks.catalog.declared import Catalog, Declared
from deltaworks.quality import compiling, planning
from deltaworks.words.keeping import Aggregate, Append, History, KeptAs, Latest, Raw, Stateful, View
from deltaworks.words.lateness import Correct, Drop, Late, SideOutput
from deltaworks.words.partitioning import DayOf
from deltaworks.words.reading import Debezium, Json


def described(catalog: Catalog, name: str) -> dict[str, object]:
    """The facts of a table; raises DeclarationError with the nearest name if there is none."""
    declared = catalog[name]
    table = declared.table
    return {
        "table": declared.name,
        "doc": declared.doc,
        "app": table.app,
        "owner": table.owner,
        "reads": declared.reads,
        "read_by": [reader.name for reader in catalog.readers(name)],
        "kept_as": kept(table.kept_as),
        "keys": list(declared.keys),
        "only": table.only,
        "event_time": table.event_time,
        "late": None if table.late is None else late(table.late),
        "partition_by": partitioned(table.partition_by),
        "subject": table.subject,
        "keep_days": table.keep_days,
        "folder": declared.folder.relative_to(catalog.project).as_posix(),
        "suite": _suite(catalog, declared),
        "bad_rows_max": _bad_rows(declared),
        "expectations": _judged(catalog, declared),
        "cases": [path.stem for path in declared.cases],
        "columns": [
            {
                "column": column.name,
                "type": column.type,
                "null": column.null,
                "pii": column.pii,
                "wire": column.wire,
                "doc": column.doc,
            }
            for column in declared.columns
        ],
    }


def _bad_rows(declared: Declared) -> str | None:
    if not isinstance(declared.table.reads, Json | Debezium):
        return None
    bound = declared.table.bad_rows_max
    return f"{bound.share:.0%} of {bound.of:,} rows or more"


def kept(kept_as: KeptAs) -> str:
    """How a table is kept, in words."""
    match kept_as:
        case Raw():
            return "raw"
        case Append(dedupe_by=(), within=_):
            return "append"
        case Append(dedupe_by=columns, within=within):
            return f"append, copies by {', '.join(columns)} within {span(within)}"
        case Latest(keys=keys, by=by):
            return f"latest by {', '.join(keys)}" + (f", the highest {by}" if by else "")
        case History(keys=keys, by=by):
            return f"history by {', '.join(keys)}" + (f", each state from {by} on" if by else "")
        case Aggregate(keys=keys, combine=combine):
            ways = ", ".join(f"{how} {name}" for name, how in combine.items())
            return f"aggregate by {', '.join(keys)}: {ways}"
        case View(keys=keys):
            return f"view by {', '.join(keys)}"
        case Stateful(keys=keys, part=part, gap=gap, reach=reach):
            length = f"gap {span(gap)}" if gap is not None else f"reach {span(reach or timedelta())}"
            return f"stateful by {', '.join(keys)}, parts by {', '.join(part)}, {length}"


def late(policy: Late) -> str:
    """What happens to late rows, in words."""
    match policy:
        case Correct(after=after):
            return f"corrects, after {span(after)}"
        case Drop(after=after):
            return f"drops, after {span(after)}"
        case SideOutput(after=after):
            return f"sets aside, after {span(after)}"


def partitioned(by: str | DayOf | None) -> str | None:
    """What parts a table has, in words."""
    return f"day of {by.column}" if isinstance(by, DayOf) else by


def span(length: timedelta) -> str:
    """A length of time in its largest whole unit."""
    seconds = length.total_seconds()
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds / size:g} {unit}{'' if seconds == size else 's'}"
    return f"{seconds:g} seconds"


def _suite(catalog: Catalog, declared: Declared) -> str:
    suite = catalog.suite(declared.name)
    if suite.waived:
        return f"waived: {suite.waived}"
    critical = sum(one.severity == "critical" for one in suite.expectations)
    return f"{critical} critical, {len(suite.expectations) - critical} warning"


def _judged(catalog: Catalog, declared: Declared) -> list[dict[str, str]]:
    """Each expectation of the suite, when it is judged, and what follows when it is not met."""
    plan = planning.planned(
        catalog.suite(declared.name), declared.columns, later=declared.implied, parses=declared.parses,
        closes_days=declared.closes_days,
    )  # fmt: skip
    return [
        {
            "expectation": compiling.name_of(one.expectation),
            "severity": one.expectation.severity,
            "judged": one.judged,
            "then": one.consequence,
        }
        for one in plan
    ]
