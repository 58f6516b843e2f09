"""Rules between tables: inputs, layers, topics, owners, cycles."""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from deltaworks.catalog.outlets import topic_findings
from deltaworks.catalog.project import ProjectNames
from deltaworks.catalog.reading import LAYERS, Readable
from deltaworks.catalog.stateful import stateful_relations
from deltaworks.findings import Finding, nearest
from deltaworks.words.keeping import Aggregate, Append, Raw, Stateful
from deltaworks.words.reading import Debezium, Json, Kafka


def relation_findings(tables: Mapping[str, Readable], names: set[str], project: ProjectNames) -> Iterator[Finding]:
    """Everything that is wrong between tables. `names` has also the tables that could not be read."""
    for table in tables.values():
        inputs = [tables[name] for name in table.declared.inputs if name in tables]
        yield from _unknown_inputs(table, names)
        yield from chain.from_iterable(
            rule(table, inputs) for rule in (_owners, _layers, _parsing, _new_rows, _keep_days, stateful_relations)
        )
        yield from _topics(table, project)
    yield from _truncates(tables, project)
    yield from topic_findings(tables, project)
    yield from _cycle(tables)
    yield from _apps(tables, names, project)


def _unknown_inputs(table: Readable, names: set[str]) -> Iterator[Finding]:
    for name in table.declared.inputs:
        if name not in names:
            others = names - {table.declared.name}
            yield table.at_field("reads", f"there is no table {name}", nearest(name, others, "tables"))


def _owners(table: Readable, inputs: list[Readable]) -> Iterator[Finding]:
    app = table.declared.table.app
    for read in inputs:
        other = read.declared.table.app
        if other != app:
            finding = f"two owners: this table is of app {app}, its input {read.declared.name} of {other}"
            yield table.at_field("app", finding, "Give both the same app: a table and its inputs have one owner")


def _layers(table: Readable, inputs: list[Readable]) -> Iterator[Finding]:
    parses = isinstance(table.declared.table.reads, Json | Debezium)
    for read in inputs:
        name, layer = read.declared.name, read.declared.layer
        raw = isinstance(read.declared.table.kept_as, Raw)
        if parses and not raw:
            yield table.at_field("reads", f"{name} is not raw: nothing to parse", "Read a bronze table")
        elif raw and not parses:
            next_step = "Parse it in a silver table with json(...) or debezium(...), and read that one"
            yield table.at_field("reads", f"{name} is raw: it has no columns", next_step)
        elif table.declared.layer != "bronze" and LAYERS.index(layer) > LAYERS.index(table.declared.layer):
            finding = f"a {table.declared.layer} table reads {name}"
            yield table.at_field("reads", finding, f"Move this table to {layer}: layers are read upwards only")


def _parsing(table: Readable, inputs: list[Readable]) -> Iterator[Finding]:
    reads = table.declared.table.reads
    for read in inputs:
        topics = read.declared.topics
        if isinstance(reads, Json) and topics and reads.topic not in topics:
            finding = f"{reads.bronze} does not read topic {reads.topic}"
            yield table.at_field("reads", finding, nearest(reads.topic, topics, "topics of it"))


def _new_rows(table: Readable, inputs: list[Readable]) -> Iterator[Finding]:
    """An aggregate sees new rows only: one input, whose rows never change, with a time if lateness matters."""
    declared = table.declared.table
    if not isinstance(declared.kept_as, Aggregate):
        return
    if len(table.declared.inputs) > 1:
        next_step = "Read one table, or keep this one as view(...)"
        yield table.at_field("reads", f"an aggregate of {len(table.declared.inputs)} tables", next_step)
    for read in inputs:
        kept_as = read.declared.table.kept_as
        if not isinstance(kept_as, Append | Raw):
            finding = f"{read.declared.name} is kept as {type(kept_as).__name__.lower()}: its rows change"
            yield table.at_field("reads", finding, "Keep this table as view(...), or read an append table")
        elif declared.late is not None and read.declared.table.event_time is None:
            finding = f"{read.declared.name} has no event_time, so nothing is late"
            yield table.at_field("late", finding, "Name its event_time, or take late out")


def _keep_days(table: Readable, inputs: list[Readable]) -> Iterator[Finding]:
    """What is computed again from rows goes before they do; a view has nothing that its inputs do not have."""
    declared = table.declared.table
    if not isinstance(declared.kept_as, Aggregate | Stateful):
        return
    for read in inputs:
        name, days = read.declared.name, read.declared.table.keep_days
        if days is not None and days > 0 and (declared.keep_days is None or declared.keep_days >= days):
            kept = "for ever" if declared.keep_days is None else f"for {declared.keep_days} days"
            finding = f"keeps its rows {kept}, {name} those that they are computed from for {days} days"
            yield table.at_field("keep_days", finding, f"Keep fewer than {days} days here, or more in {name}")
        if declared.keep_days is not None and read.declared.table.event_time is None:
            finding = f"{name} has no event_time, so nothing is ever past"
            yield table.at_field("keep_days", finding, "Name its event_time, or take keep_days out")


def _topics(table: Readable, project: ProjectNames) -> Iterator[Finding]:
    if project.topics is None or not isinstance(table.declared.table.reads, Kafka):
        return
    for topic in table.declared.topics:
        if topic not in project.topics:
            finding = f"topic {topic} is not in topics.toml"
            yield table.at_field("reads", finding, nearest(topic, project.topics, "topics"))


def _truncates(tables: Mapping[str, Readable], project: ProjectNames) -> Iterator[Finding]:
    """Debezium's truncate has no key: the broker refuses such a record where a topic is compacted."""
    reads = [table.declared.table.reads for table in tables.values()]
    for name in sorted({one.bronze for one in reads if isinstance(one, Debezium)} & set(tables)):
        for topic in tables[name].declared.topics:
            cleanup = (project.topics or {}).get(topic, "delete")
            if cleanup != "delete":
                place, next_step = f"topics.toml {topic} cleanup", 'Write cleanup = "delete"'
                finding = f"is {cleanup!r}, and {name} takes changes from it: the broker refuses a truncate"
                yield Finding(place=place, finding=finding, next_step=next_step)


def _cycle(tables: Mapping[str, Readable]) -> Iterator[Finding]:
    published = {p.topic: name for name, one in tables.items() if (p := one.declared.table.publishes) is not None}
    graph = {}
    for name in sorted(tables):
        declared = tables[name].declared
        by_topic = [published[topic] for topic in declared.topics if topic in published]
        graph[name] = [*(i for i in declared.inputs if i in tables), *by_topic]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        path = list(reversed(error.args[1]))  # graphlib names each node after its input
        start = path.index(min(path))
        path = [*path[start:-1], *path[:start], path[start]]
        finding = f"a cycle: {' reads '.join(path)}"
        yield tables[path[0]].at_field("reads", finding, "Let one of them read something else")


def _apps(tables: Mapping[str, Readable], names: set[str], project: ProjectNames) -> Iterator[Finding]:
    """An app that deltaworks.toml sets up owns a table; told only when every table could be read."""
    if len(tables) < len(names):
        return
    owning = {table.declared.table.app for table in tables.values()}
    for app in project.apps or ():
        if app not in owning:
            place, finding = f"deltaworks.toml [apps.{app}]", "no table has this app"
            yield Finding(place=place, finding=finding, next_step=nearest(app, owning, "apps"))
