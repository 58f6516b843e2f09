"""`ledger`: where every row went."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli import show
from deltaworks.cli.context import settings

if TYPE_CHECKING:
    from deltaworks.engine.broker import Edge
    from deltaworks.engine.ledger import Ledger


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command()(ledger)


def ledger(
    table: Annotated[
        str | None, typer.Argument(help="Show the last commits of this table, or of one beside it, instead.")
    ] = None,
    *,
    number: Annotated[int, typer.Option("--number", "-n", help="How many commits of a table.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show per topic what was read and per table where the rows went; exit 1 if a number does not meet."""
    from deltaworks import catalog
    from deltaworks.engine.ledger import SIDES, Ledger

    now = settings()
    found = catalog.load(now.project)
    books = Ledger(found, now.lake)
    if table is not None:
        name, _, side = table.partition("__")
        found[name if side in SIDES else table]  # raises, with the nearest name
        _history(books, table, number, as_json=as_json)
        return
    lines = [asdict(line) for line in books.lines(_edges(books))]
    sheets = [asdict(sheet) for sheet in books.sheets()]
    if as_json:
        show.listing([{"topics": lines, "tables": sheets, "balanced": books.balanced}], title="ledger", as_json=True)
    else:
        show.listing(lines, title="Topics: offsets read = rows + gaps + lost", as_json=False)
        show.out.print()
        title = "Tables: read = taken + superseded + refused + duplicate + late + not mine"
        show.listing(_narrow(sheets), title=title, as_json=False)
        show.out.print("[dim]gaps are offsets without a record: transaction markers and compacted records[/dim]")
    if not books.balanced:
        raise typer.Exit(1)


def _narrow(sheets: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """What fits a terminal: the verdict first, no versions, and none of the ways that no row went."""
    first = ("table", "verdict", "rows", "read", "taken")
    ways = [name for name in sheets[0] if name not in (*first, "version")] if sheets else []
    used = [name for name in ways if any(sheet[name] for sheet in sheets)]
    return [{name: sheet[name] for name in (*first, *used)} for sheet in sheets]


def _edges(books: "Ledger") -> dict[str, dict[str, "Edge"]]:
    """What the broker has; nothing while it is down, the ledger stands without it."""
    from deltaworks.engine.broker import Broker
    from deltaworks.errors import SourceError

    topics = sorted({line.topic for line in books.lines()})
    broker = Broker(bootstrap=settings().kafka, group="deltaworks.ledger", timeout_seconds=3)
    try:
        return broker.reachable(broker.edges(topics), books.offsets())
    except SourceError as error:
        show.err.print(f"{error} Shown without the broker's end offsets.", style="yellow")
        return {}
    finally:
        broker.close()


def _history(books: "Ledger", table: str, number: int, *, as_json: bool) -> None:
    from itertools import islice

    from deltaworks.engine.entry import Counts

    rows = []
    for commit in islice(books.commits(table), number):
        entry = commit.entry
        rows.append(
            {
                "version": commit.version,
                "kind": "FOREIGN" if entry is None else entry.kind,
                "batch": None if entry is None else entry.ingest_seq,
                "epoch": None if entry is None else entry.epoch,
                **(dict.fromkeys(asdict(Counts())) if entry is None else asdict(entry.counts)),
                "event_high": None if entry is None else entry.event_high,
                **({"warnings": {} if entry is None else dict(entry.warnings)} if as_json else {}),
            }
        )
    unused = [name for name in asdict(Counts()) if name not in ("read", "taken") and not any(row[name] for row in rows)]
    if not as_json:  # what fits a terminal
        rows = [{name: value for name, value in row.items() if name not in unused} for row in rows]
    show.listing(rows, title=f"Commits of {table}, newest first", as_json=as_json)
