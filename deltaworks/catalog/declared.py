"""What the catalog gives: declared tables, in dependency order."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from deltaworks import cases, suites
from deltaworks.cases import Case, Form
from deltaworks.errors import DeclarationError
from deltaworks.findings import nearest
from deltaworks.suites import Suite
from deltaworks.words import Column, Table
from deltaworks.words.keeping import Aggregate, Append, History, Latest, Raw, Stateful, View
from deltaworks.words.lateness import SideOutput
from deltaworks.words.reading import Debezium, Json, Kafka

BRONZE_COLUMNS = (
    Column("topic", "string", null=False, doc="Kafka topic."),
    Column("partition", "int", null=False, doc="Kafka partition."),
    Column("offset", "bigint", null=False, doc="Place in the partition; unique with topic and partition."),
    Column("timestamp", "timestamp", null=False, doc="The broker's time of the record: its time of arrival."),
    Column("key", "binary", doc="The record's key, as it came."),
    Column("value", "binary", doc="The record's value, as it came; null is a tombstone."),
    Column("headers", "array<struct<key:string,value:binary>>", doc="The record's headers, as they came."),
    Column("_seq", "bigint", null=False, doc="Ingest batch that brought the row; the engine's own counter."),
)

HISTORY_COLUMNS = (
    Column("valid_from", "timestamp", null=False, doc="Since when the row was so, UTC: by the source, or by `by=`."),
    Column("valid_to", "timestamp", doc="When the state ended, UTC, not included; null while it holds."),
    Column("is_current", "boolean", null=False, doc="Whether the state still holds."),
)
"""What a history has beside the declared columns."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declared:
    """A table as its folder declares it."""

    name: str
    layer: str
    table: Table
    doc: str
    folder: Path
    inputs: tuple[str, ...]
    topics: tuple[str, ...]
    transform: Path | None
    suite: Path | None
    cases: tuple[Path, ...]
    keys: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The declared columns; of a bronze table Kafka's; of a history its own too."""
        match self.table.kept_as:
            case Raw():
                return BRONZE_COLUMNS
            case History():
                return (*self.table.columns, *HISTORY_COLUMNS)
        return self.table.columns

    @property
    def implied(self) -> tuple[str, ...]:
        """Columns that the table has by the way it is kept; its input lacks them."""
        return tuple(c.name for c in HISTORY_COLUMNS) if isinstance(self.table.kept_as, History) else ()

    @property
    def row_keys(self) -> tuple[str, ...]:
        """What tells the rows of a case apart: the keys; of a history, which has many rows of a key, also the time."""
        return (*self.keys, "valid_from") if isinstance(self.table.kept_as, History) else self.keys

    @property
    def copied(self) -> bool:
        """Whether what changes in it goes elsewhere too. Rows of a table without keys do not change."""
        return bool(self.keys) and (self.table.serves is not None or self.table.publishes is not None)

    @property
    def has_range(self) -> bool:
        """Whether its rows are events, or have a place in time by which they can be computed again."""
        kept_as, event_time = self.table.kept_as, self.table.event_time
        match kept_as:
            case Stateful():
                return True
            case Aggregate():
                return event_time in kept_as.keys
            case View():
                return event_time is not None
        return self.has_events

    @property
    def has_events(self) -> bool:
        """Whether it keeps events with their time."""
        return isinstance(self.table.kept_as, Append) and self.table.event_time is not None

    @property
    def closes_days(self) -> bool:
        """Whether its days are told to be complete, each once a later one begins."""
        return self.layer == "gold" and self.table.event_time is not None

    @property
    def parses(self) -> bool:
        """Whether it makes rows of what came, and refuses what it cannot."""
        return isinstance(self.table.reads, Json | Debezium)

    @property
    def is_computed(self) -> bool:
        """Whether a transform computes it from other tables: it may fail on a row."""
        return isinstance(self.table.kept_as, Aggregate | Stateful | View)

    @property
    def sets_late_rows_aside(self) -> bool:
        """Whether rows that come too late are kept beside it."""
        return isinstance(self.table.late, SideOutput)

    @property
    def reads(self) -> str:
        """What it reads, in words."""
        match self.table.reads:
            case Kafka(topics=topics):
                return f"kafka {', '.join(topics)}"
            case Json(bronze=bronze, topic=topic):
                return f"json {topic} from {bronze}"
            case Debezium(bronze=bronze, table=table):
                return f"debezium {table} from {bronze}"
        return ", ".join(self.inputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Catalog:
    """The tables of a project. `tables` is in dependency order: inputs come first."""

    project: Path
    tables: Mapping[str, Declared]

    def __getitem__(self, name: str) -> Declared:
        """The table of that name; raises DeclarationError with the nearest name."""
        if name not in self.tables:
            raise DeclarationError(name, "there is no such table", nearest(name, self.tables, "tables"))
        return self.tables[name]

    @property
    def apps(self) -> tuple[str, ...]:
        """Names of the apps, sorted."""
        return tuple(sorted({declared.table.app for declared in self.tables.values()}))

    def app(self, name: str) -> tuple[Declared, ...]:
        """The tables that an app owns, in dependency order; raises DeclarationError for an unknown app."""
        if name not in self.apps:
            raise DeclarationError(f"app {name}", "no table has this app", nearest(name, self.apps, "apps"))
        return tuple(declared for declared in self.tables.values() if declared.table.app == name)

    def cases(self, name: str) -> tuple[Case, ...]:
        """The cases of a table; raises DeclarationError with the first mistake of their form."""
        declared = self[name]
        inputs, output = case_forms(declared, self.tables)
        return tuple(
            cases.load(path, shown=path.relative_to(self.project).as_posix(), table=name, inputs=inputs, output=output)
            for path in declared.cases
        )

    def suite(self, name: str) -> Suite:
        """The suite of a table; raises DeclarationError if its file was broken since the catalog was loaded."""
        declared = self[name]
        if declared.suite is None:
            raise DeclarationError(suites.shown_path(name), "the suite is missing", "Write it")
        return suites.load(declared.suite, table=name, columns=[column.name for column in declared.columns])

    def topics_below(self, name: str) -> tuple[str, ...]:
        """The topics that a table is made from, by whatever way; raises DeclarationError with the nearest name."""
        declared = self[name]
        below = (topic for source in declared.inputs for topic in self.topics_below(source))
        return tuple(dict.fromkeys((*declared.topics, *below)))

    def readers(self, name: str) -> tuple[Declared, ...]:
        """The tables that read this one, in dependency order."""
        return tuple(declared for declared in self.tables.values() if name in declared.inputs)


def catalog_of(project: Path, tables: Iterable[Declared]) -> Catalog:
    """A catalog of tables that are in dependency order already."""
    return Catalog(project=project, tables=MappingProxyType({declared.name: declared for declared in tables}))


def inputs_of(table: Table) -> tuple[str, ...]:
    """The tables that this one reads; none for bronze."""
    match table.reads:
        case Kafka():
            return ()
        case Json(bronze=bronze) | Debezium(bronze=bronze):
            return (bronze,)
        case str(name):
            return (name,)
        case names:
            return names


def keys_of(table: Table) -> tuple[str, ...]:
    """The columns of which a table has one row per value (a history: one current row); none for raw and append."""
    match table.kept_as:
        case Latest(keys=keys) | History(keys=keys) | Aggregate(keys=keys) | View(keys=keys) | Stateful(keys=keys):
            return keys
        case Raw() | Append():
            return ()


def case_forms(declared: Declared, tables: Mapping[str, Declared]) -> tuple[dict[str, Form], Form]:
    """What the rows of a table's inputs and its own look like in a case."""
    inputs = {
        name: Form(
            columns=tables[name].columns,
            keys=tables[name].row_keys,
            wire=isinstance(tables[name].table.kept_as, Raw),
        )
        for name in declared.inputs
    }
    return inputs, Form(columns=declared.columns, keys=declared.row_keys, wire=False)
