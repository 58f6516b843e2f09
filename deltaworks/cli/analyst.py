"""SQL over the lake for analysts."""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from deltaworks.cli import answers
from deltaworks.cli.compute_again import moment
from deltaworks.cli.context import settings

_ROWS_SHOWN = 1000


def register(main: typer.Typer) -> None:
    """Add `sql` to the command line."""
    main.command("sql")(sql)


def sql(
    query: Annotated[str, typer.Argument(help='One reading statement, e.g. "show tables"; - reads it from stdin.')],
    *,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Each table as it was at a time, such as 2026-11-22T10:00 (UTC) or …+01:00."),
    ] = None,
    served: Annotated[
        bool, typer.Option("--served", help="Ask the copies in the serving database instead, in Postgres's SQL.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list of objects.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV with a header (RFC 4180).")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Most rows to give; 1000 in a table, else all.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that the query may run.")] = 30,
    memory: Annotated[str, typer.Option(help="Memory that the query may use.")] = "1GB",
) -> None:
    """Ask the lake with SQL; a table is layer.table, e.g. gold.daily_orders. Read-only."""
    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    if served and as_of is not None:
        raise typer.BadParameter("--served and --as-of exclude each other: a copy is of one version")
    then = None if as_of is None else moment(as_of, option="--as-of")
    text = sys.stdin.read() if query == "-" else query
    if served:
        _served(text, as_json=as_json, as_csv=as_csv, limit=limit, timeout=timeout)
        return
    from deltaworks.analyst import connect

    given = settings()
    with connect(given.lake, memory=memory, listed=_declared(given.project)) as lake:
        if not as_json and not as_csv:
            answers.show(lake.sql(text, as_of=then, timeout_seconds=timeout, rows_max=limit or _ROWS_SHOWN))
            return
        with lake.stream(text, as_of=then, timeout_seconds=timeout) as (columns, batches):
            write = answers.write_json if as_json else answers.write_csv
            write([column.name for column in columns], _first(limit, batches))


def _declared(project: Path) -> Callable[[str], bool]:
    """Whether a table is one of the project, lies beside one, or is the engine's; all are, if the project has none."""

    @cache
    def names() -> frozenset[str]:
        from deltaworks.catalog import readable

        return frozenset(name.lower() for name in readable(project))

    def declared(table: str) -> bool:
        return not names() or table.startswith("ops.") or table.partition("__")[0] in names()

    return declared


def _served(text: str, *, as_json: bool, as_csv: bool, limit: int | None, timeout: float) -> None:
    from deltaworks.served import ask

    plain = not as_json and not as_csv
    rows_max = limit or (_ROWS_SHOWN if plain else None)
    answer = ask(settings().serving_dsn("reader"), text, timeout_seconds=timeout, rows_max=rows_max)
    if plain:
        answers.show(answer)
        return
    write = answers.write_json if as_json else answers.write_csv
    write([column.name for column in answer.columns], answer.rows)


def _first(limit: int | None, batches: Iterator[list[tuple[object, ...]]]) -> Iterator[tuple[object, ...]]:
    return islice((row for batch in batches for row in batch), limit)
