"""Rules for where a table's rows go beside the lake: the serving database, a topic."""

from collections.abc import Iterator, Mapping
from itertools import combinations

from deltaworks.catalog.project import ProjectNames
from deltaworks.catalog.reading import Readable
from deltaworks.findings import Finding, nearest
from deltaworks.words.keeping import History, Raw
from deltaworks.words.outlets import LANGUAGES, Changelog, Events


def outlet_findings(table: Readable) -> Iterator[Finding]:
    """What is wrong with `serves` and `publishes` in themselves."""
    declared = table.declared.table
    fields = [field for field in ("serves", "publishes") if getattr(declared, field) is not None]
    if isinstance(declared.kept_as, Raw):
        for field in fields:
            next_step = "Take it out: declare it in a table above"
            yield table.at_field(field, f"{field} means nothing in a raw table", next_step)
        return
    if isinstance(declared.kept_as, History):
        for field in fields:
            finding = f"{field} does not go with a history: states of one moment have the same key"
            yield table.at_field(field, finding, "Declare it in a view over it")
        return
    yield from _keyed(table, [field for field in fields if not isinstance(getattr(declared, field), Events)])
    yield from _searched(table)
    if isinstance(declared.publishes, Events):
        if not declared.publishes.key:
            yield table.at_field("publishes", "events without a key", "Name the columns whose order is to be kept")
        names = [column.name for column in table.declared.columns]
        for name in declared.publishes.key:
            if name not in names:
                yield table.at_field("publishes", f"key {name} is not declared", nearest(name, names, "columns"))


def _keyed(table: Readable, fields: list[str]) -> Iterator[Finding]:
    """A row of a copy takes the place of the one with its key."""
    for field in fields if not table.declared.keys else ():
        next_step = "Write events(topic, key=...) to publish it, or declare it in a table that has keys"
        yield table.at_field(field, f"{field} needs a table with one row per key", next_step)
    for column in table.declared.columns:
        if not fields or column.name not in table.declared.keys:
            continue
        if column.null:
            next_step = f"Write null=False: {' and '.join(fields)} cannot tell rows without it apart"
            yield table.at_column(column.name, "is a key, but may be null", next_step)
        if column.type == "double":
            finding = "is a key, and not every double equals itself"
            yield table.at_column(column.name, finding, f"Take a decimal, or leave {' and '.join(fields)} out")


def _searched(table: Readable) -> Iterator[Finding]:
    serves, columns = table.declared.table.serves, {column.name: column for column in table.declared.columns}
    if serves is None:
        return
    if serves.language not in LANGUAGES:
        next_step = nearest(serves.language, LANGUAGES, "languages")
        yield table.at_field("serves", f"there is no text search in {serves.language}", next_step)
    for name in serves.search:
        if name not in columns:
            yield table.at_field("serves", f"search column {name} is not declared", nearest(name, columns, "columns"))
        elif columns[name].type != "string":
            finding = f"search column {name} is of type {columns[name].type}"
            yield table.at_field("serves", finding, "Name columns of text")


def topic_findings(tables: Mapping[str, Readable], project: ProjectNames) -> Iterator[Finding]:
    """Each topic that is published to is there, fits, and has one writer."""
    publishing = [(table, table.declared.table.publishes) for table in tables.values()]
    found = [(table, publishes) for table, publishes in publishing if publishes is not None]
    for table, publishes in found:
        if project.topics is None:
            continue
        topic = publishes.topic
        cleanup, wanted = project.topics.get(topic), "compact" if isinstance(publishes, Changelog) else "delete"
        if cleanup is None:
            finding = f"topic {topic} is not in topics.toml"
            yield table.at_field("publishes", finding, nearest(topic, project.topics, "topics"))
        elif cleanup != wanted:
            why = (
                "the newest message of each key is to stay"
                if wanted == "compact"
                else "each event counts, not the last"
            )
            place = f"topics.toml {topic} cleanup"
            finding = f"is {cleanup!r}, and {table.declared.name} publishes to it: {why}"
            yield Finding(place=place, finding=finding, next_step=f'Write cleanup = "{wanted}"')
    for (one, first), (other, second) in combinations(found, 2):
        if first.topic == second.topic:
            finding = f"{one.declared.name} publishes to {first.topic} too"
            yield other.at_field("publishes", finding, "Give each table a topic of its own")
