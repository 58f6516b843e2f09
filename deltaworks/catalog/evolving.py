"""What a declaration says of a source that changes: older names of columns, the column of undeclared fields."""

from collections.abc import Iterator

from deltaworks.catalog.reading import Readable
from deltaworks.findings import Finding, nearest
from deltaworks.words.reading import Debezium, Json, UnknownFields


def kept_column(table: Readable) -> str | None:
    """Name of the column that takes undeclared fields, if the table keeps them."""
    reads = table.declared.table.reads
    unknown = reads.unknown_fields if isinstance(reads, Json | Debezium) else None
    return unknown.column if isinstance(unknown, UnknownFields) else None


def evolving(table: Readable) -> Iterator[Finding]:
    """`previously` and `keep(...)` mean one thing only."""
    yield from _renamed(table)
    name = kept_column(table)
    if name is None:
        return
    columns = {column.name: column for column in table.declared.table.columns}
    if name not in columns:
        next_step = f'Declare Column("{name}", "string", doc=...), or keep them in another'
        yield table.at_field("reads", f"undeclared fields are kept in {name}, which is not declared", next_step)
        return
    column = columns[name]
    if column.type != "string" or not column.null or column.wire or column.previously:
        next_step = "Declare it as a nullable string, without wire and previously"
        yield table.at_column(name, "takes undeclared fields as JSON text", next_step)
    if name in table.declared.keys:
        yield table.at_column(name, "takes undeclared fields and is a key", nearest(name, [*columns], "columns"))


def _renamed(table: Readable) -> Iterator[Finding]:
    declared = table.declared.table
    names = [column.name for column in declared.columns]
    older = [column.previously for column in declared.columns if column.previously is not None]
    for column in declared.columns:
        if column.previously is None:
            continue
        if not isinstance(declared.reads, Json | Debezium):
            finding = "previously means nothing in a table that does not parse"
            yield table.at_column(column.name, finding, "Take it out")
        elif column.previously in names or older.count(column.previously) > 1 or not column.previously:
            finding = f"previously {column.previously!r} is another column's name too"
            yield table.at_column(column.name, finding, "Name what the source called this column alone")
