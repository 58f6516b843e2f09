"""What an analyst may say: one statement that reads tables of the lake and nothing else.

DuckDB's own parser gives the tree, and every node of it is judged before anything is bound or run. This is needed
beside DuckDB's settings: allowed folders can also be written, the Delta extension reads logs past them and brings a
function that writes anywhere.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from deltaworks.errors import QueryError
from deltaworks.query.functions import CALLED_IN_FROM, FUNCTIONS
from deltaworks.query.text import literal

_ALLOWED = "SELECT, WITH, VALUES, DESCRIBE, SUMMARIZE, SHOW TABLES and EXPLAIN"
Rows = list[tuple[Any, ...]]
# possessive (*+): comments without an end would be tried in every way else, which takes for ever
_EXPLAIN = re.compile(r"(?:\s|--[^\n]*+\n|/\*.*?\*/)*+explain\b(\s+analyze\b)?", re.IGNORECASE | re.DOTALL)
_CHARACTERS_MAX = 1_000_000
# views that DuckDB has beside ours: in WITH such a name would let them through where it does not hold
_OF_DUCKDB = ("duckdb_", "pragma_", "sqlite_", "pg_")
_LISTINGS = frozenset({'"tables"', "__show_tables_expanded"})
_FILE_MARKS = frozenset("./\\:*?[")


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A judged statement: its text as it will run, and the tables of the lake that it names (lower case)."""

    sql: str
    tables: tuple[str, ...]


def read_statement(
    sql: str, *, parse: Callable[[str], Rows], known: tuple[str, ...], listed: Callable[[str], bool] | None = None
) -> Statement:
    """Parse and judge; raises QueryError for what is not one reading statement over known tables.

    `listed`: which of them are shown by SHOW TABLES; all, where it is None.
    `parse` answers a query of ours that holds theirs as a literal: DuckDB's parser runs where DuckDB does.
    """
    explain = _EXPLAIN.match(sql)
    body = sql[explain.end() :] if explain else sql
    tree = _tree(body, parse=parse)
    if not explain and (listing := _listing(tree, known=known, listed=listed)):
        return Statement(sql=listing, tables=())
    nodes = list(_nodes(tree))
    for node in nodes:
        _judge(node)
    own = _names_given_in_with(nodes)
    tables = tuple(sorted({name for node in nodes if (name := _table(node, known=known, own=own))}))
    return Statement(sql=f"EXPLAIN{explain[1] or ''} {body}" if explain else sql, tables=tables)


def _tree(sql: str, *, parse: Callable[[str], Rows]) -> dict[str, Any]:
    if "\0" in sql:  # DuckDB stops reading there, we would not
        raise QueryError("query", "holds a zero byte", "Take it out")
    if len(sql) > _CHARACTERS_MAX:
        raise QueryError("query", f"has more than {_CHARACTERS_MAX:,} characters", "Say it in fewer")
    ((answer,),) = parse(f"SELECT json_serialize_sql({literal(sql)})")
    try:
        parsed: dict[str, Any] = json.loads(answer)
    except RecursionError:
        raise _too_deep() from None
    if parsed.get("error_type") == "not implemented":
        step = "Give PIVOT its values: pivot t on c in ('a', 'b')" if _pivots(sql) else f"Use {_ALLOWED}"
        raise QueryError("query", "only statements that read are allowed here", step)
    if "expression depth" in parsed.get("error_message", ""):
        raise _too_deep()
    if parsed.get("error"):
        raise QueryError("query", str(parsed["error_message"]), "Mend the SQL")
    if len(parsed["statements"]) != 1:
        raise QueryError("query", f"{len(parsed['statements'])} statements", "Give exactly one")
    tree: dict[str, Any] = parsed["statements"][0]["node"]
    return tree


def _too_deep() -> QueryError:
    return QueryError("query", "is nested too deeply", "Give its parts names with WITH")


def _pivots(sql: str) -> bool:
    return re.search(r"\bpivot\b", sql, re.IGNORECASE) is not None


def _nodes(tree: object) -> Iterator[dict[str, Any]]:
    """Every object of the tree; a stack instead of recursion because expressions nest deeply."""
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _judge(node: dict[str, Any]) -> None:
    if node.get("type") == "TABLE_FUNCTION":
        function = node.get("function")
        named = str(function.get("function_name", "")).lower() if isinstance(function, dict) else ""
        if named not in CALLED_IN_FROM:
            step = 'Name one as layer.table; "show tables" lists them'
            raise QueryError(f"{named}()", "only tables of the lake can be read", step)
    name = str(node.get("function_name", "")).lower()
    if name and name not in FUNCTIONS and name not in CALLED_IN_FROM:
        raise _not_allowed(name)
    if node.get("type") == "SHOW_REF" and node.get("query") is None:  # DESCRIBE and SUMMARIZE hold a query
        raise QueryError("query", "this cannot be shown", 'Use "show tables" or "describe layer.table", alone')


def _not_allowed(name: str) -> QueryError:
    """The error for a function that may not be called, with the names nearest to it: it may be misspelt."""
    near = get_close_matches(name, FUNCTIONS, n=3, cutoff=0.75)
    step = f"Nearest: {', '.join(near)}" if near else "Take it out of the query"
    return QueryError(f"{name}()", "is not a function that may be called here", step)


def _listing(
    tree: dict[str, Any], *, known: tuple[str, ...], listed: Callable[[str], bool] | None = None
) -> str | None:
    """SHOW TABLES [FROM layer] as a query over the names that we know, so that no table is opened for it."""
    shown = tree.get("from_table")
    if not isinstance(shown, dict) or shown.get("type") != "SHOW_REF" or shown.get("query") or shown["catalog_name"]:
        return None
    layer = str(shown["schema_name"]).lower()
    if not layer and shown["table_name"] not in _LISTINGS:
        return None
    named = [table for table in known if layer in {"", table.partition(".")[0]}]
    names = ", ".join(literal(table) for table in named if listed is None or listed(table))
    return f'SELECT unnest([{names}]::VARCHAR[]) AS "table"'


def _names_given_in_with(nodes: list[dict[str, Any]]) -> frozenset[str]:
    entries = (entry for node in nodes if "cte_map" in node for entry in node["cte_map"]["map"])
    names = frozenset(str(entry["key"]).lower() for entry in entries)
    for name in sorted(names):
        if name.startswith(_OF_DUCKDB):
            raise QueryError(name, "cannot be the name of a part of a query", "Give it another one")
    return names


def _table(node: dict[str, Any], *, known: tuple[str, ...], own: frozenset[str]) -> str | None:
    """The lake's table that the node names, or None for a node that names none."""
    if node.get("type") != "BASE_TABLE":
        return None
    catalog, schema, table = (str(node.get(f"{part}_name", "")) for part in ("catalog", "schema", "table"))
    if not catalog and not schema:
        # else DuckDB would take the name for a file's, or for a view of its own that tells of the machine
        if table.lower() not in own or _FILE_MARKS & set(table):
            raise _no_such_table(table, known=known)
        return None
    name = ".".join(part for part in (catalog, schema, table) if part)
    if catalog or name.lower() not in known:
        raise _no_such_table(name, known=known)
    if node.get("at_clause"):
        step = "Take AT (…) out and use --as-of (as_of= in Python)"
        raise QueryError(name, "earlier versions cannot be asked for in SQL", step)
    return name.lower()


def _no_such_table(name: str, *, known: tuple[str, ...]) -> QueryError:
    """The error for a table that is not there, with the names nearest to what was meant."""
    wanted = name.lower()
    near = [table for table in known if table.partition(".")[2] == wanted.rpartition(".")[2]]
    near = near or get_close_matches(wanted, known, n=3, cutoff=0.7)
    if not near:
        bare = {table.partition(".")[2]: table for table in known}
        near = [bare[match] for match in get_close_matches(wanted.rpartition(".")[2], bare, n=3, cutoff=0.7)]
    step = f"Nearest: {', '.join(near)}" if near else 'Run "show tables" to see what there is'
    return QueryError(name, "no such table", step)
