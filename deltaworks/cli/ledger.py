"""`ledger`: where every row went."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltaworks.cli import show
from deltaworks.cli.context import settings
from deltaworks.cli.held_up import SECONDS_WARN
from deltaworks.cli.ledger_table import about_table

if TYPE_CHECKING:
    from deltaworks.engine.broker import Edge, OpenTransaction
    from deltaworks.engine.ledger import Ledger


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command()(ledger)


def ledger(
    table: Annotated[
        str | None, typer.Argument(help="Show this table, or one beside it, with its last commits, instead.")
    ] = None,
    *,
    number: Annotated[int, typer.Option("--number", "-n", help="How many commits of a table.")] = 20,
    gaps: Annotated[str | None, typer.Option("--gaps", metavar="TOPIC", help="List a topic's gaps instead.")] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Have ops.ledger written anew from the commits first.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show per topic what was read and per table where the rows went.

    Exit code 1 if a number does not meet, a table is suspended, or the source does not give what one reads.
    """
    from deltaworks import catalog
    from deltaworks.engine.ledger import SIDES, Ledger

    now = settings()
    found = catalog.load(now.project)
    if rebuild:
        _rebuild(found.apps)
    books = Ledger(found, now.lake)
    if gaps is not None:
        _gaps(books, gaps, as_json=as_json)
        return
    if table is not None:
        name, _, side = table.partition("__")
        found[name if side in SIDES else table]  # raises, with the nearest name
        about_table(books, table, number, as_json=as_json)
        return
    _everything(books, as_json=as_json)


def _everything(books: "Ledger", *, as_json: bool) -> None:
    edges, held_up = _edges(books)
    unread = _unread(books)
    lines = [_with_unread(_held_up(asdict(line), held_up), unread) for line in books.lines(edges)]
    suspended, not_given = _suspended(), _not_given()
    sheets = [_told(_lacking(asdict(sheet), not_given), suspended) for sheet in books.sheets()]
    balanced = not any(str(one["verdict"]).startswith("RED") for one in (*lines, *sheets))
    if as_json:
        show.listing([{"topics": lines, "tables": sheets, "balanced": balanced}], title="ledger", as_json=True)
    else:
        show.listing(_narrow(lines, _LINE), title="Topics: offsets read = rows + gaps + lost", as_json=False)
        show.out.print()
        if gaps := [line for line in lines if line["gaps"]]:
            show.listing(_narrow(gaps, _GAPS, _OF_GAPS), title="Gaps: offsets without a row", as_json=False)
            show.out.print()
        title = "Tables: read = taken + superseded + refused + duplicate + late + not mine + filtered + expired"
        ways = [name for name in sheets[0] if name not in (*_SHEET, "version")] if sheets else []
        show.listing(_narrow(sheets, _SHEET, ways), title=title, as_json=False)
        show.out.print("[dim]ledger TABLE, ledger --gaps TOPIC: what is behind these numbers[/dim]")
    if not balanced or suspended or any(str(one["verdict"]).startswith(_LACKING) for one in sheets):
        raise typer.Exit(1)


def _suspended() -> dict[str, str]:
    """Per table that its app cannot bring further the error, as its driver last said."""
    from deltaworks.control import Store
    from deltaworks.errors import ControlError, SettingsError
    from deltaworks.supervise.judge import suspended_tables
    from deltaworks.supervise.watch import judged

    found = dict[str, str]()
    try:
        with Store(settings().control_dsn(), application="deltaworks cli") as store:
            for app in store.apps():
                seen, verdict = judged(settings(), store, app.name)
                if verdict.state == "suspended" and seen.heartbeat is not None:  # of a driver that is gone, tables wait
                    found |= suspended_tables(seen.heartbeat)
    except (ControlError, SettingsError) as error:
        show.err.print(f"{error} Shown without which tables are suspended.", style="yellow")
    return found


def _not_given() -> dict[str, list[str]]:
    """Per table over changes what the source, or the connector, does not give it."""
    from deltaworks.errors import DeltaworksError
    from deltaworks.local import doctor

    found: dict[str, list[str]] = {}
    try:
        for gap in doctor.not_given(settings()) or ():
            table, _, column = gap.place.partition(".")[2].partition(".")
            name = f"{gap.place.partition('.')[0]}.{table}"
            found.setdefault(name, []).append(f"{column}: {gap.finding}" if column else gap.finding)
    except DeltaworksError as error:  # of what is beside the lake, whose own numbers stand
        told = f'{error} Shown without what it does not give. Look at "deltaworks doctor".'
        show.err.print(told, style="yellow", markup=False, soft_wrap=True)
    return found


def _lacking(sheet: dict[str, Any], not_given: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """With what its source does not give the table, where its own numbers meet: they are of what has come."""
    first, *more = not_given.get(sheet["table"], ("",))
    if not first or str(sheet["verdict"]).startswith("RED"):
        return sheet
    others = f" (and {len(more)} more, see doctor)" if more else ""
    lags = "" if sheet["verdict"] == "ok" else f"; {sheet['verdict']}"
    return {**sheet, "verdict": f"{_LACKING}{first}{others}{lags}"}


def _unread(books: "Ledger") -> tuple[Collection[str], str]:
    """The topics of changes, and what their connector could not read, in words; empty if it read all."""
    from deltaworks.local import doctor
    from deltaworks.words.reading import Debezium

    read = (one.table.reads for one in books.catalog.tables.values())
    topics = {topic for reads in read if isinstance(reads, Debezium) for topic in books.catalog[reads.bronze].topics}
    return topics, "; ".join(told for told, _ in doctor.unread(settings()) or ())


def _with_unread(line: dict[str, Any], unread: tuple[Collection[str], str]) -> dict[str, Any]:
    topics, told = unread
    if not told or line["topic"] not in topics or line["verdict"] != "ok":
        return line
    return {**line, "verdict": f"warn: {told}"}


def _told(sheet: dict[str, Any], suspended: Mapping[str, str]) -> dict[str, Any]:
    """With what its driver says of the table, where that is worse than what the books say."""
    error = suspended.get(sheet["table"])
    if error is None or str(sheet["verdict"]).startswith("RED"):
        return sheet
    return {**sheet, "verdict": f"suspended: {error}; {sheet['verdict']}"}


_LACKING = "source: "
_LINE = ("topic", "partition", "table", "end", "read_up_to", "rows", "gaps", "lost", "verdict")
_GAPS = ("topic", "partition", "table", "gaps")
_OF_GAPS = ("markers", "aborted", "compacted", "missing", "gone", "not_asked")
_SHEET = ("table", "verdict", "rows", "read", "taken")


def _narrow(
    rows: Sequence[Mapping[str, object]], always: Sequence[str], if_any: Sequence[str] = ()
) -> list[dict[str, object]]:
    """What fits a terminal: some columns always, others if something went their way."""
    used = [name for name in if_any if any(row[name] for row in rows)]
    return [{name: row[name] for name in (*always, *used)} for row in rows]


def _rebuild(apps: Sequence[str]) -> None:
    from deltaworks.cli.actors import ASKED, user
    from deltaworks.cli.commands import order
    from deltaworks.engine.record_book import book_name

    for app in apps:
        order(
            book_name(app), app=app, kind="rebuild", arguments={}, by=user(),
            reason=ASKED, wait=True,
        )  # fmt: skip


def _gaps(books: "Ledger", topic: str, *, as_json: bool) -> None:
    """List what the commits say of gaps, and what the broker says now of those that nobody has asked about yet."""
    from deltaworks.engine.gaps import BrokerWitness

    lines = [line for line in books.lines() if line.topic == topic]
    if not lines:
        known = ", ".join(sorted({line.topic for line in books.lines()})) or "none yet"
        raise typer.BadParameter(f"No table has read it. Known are: {known}.", param_hint="--gaps")
    with BrokerWitness(bootstrap=settings().kafka, timeout_seconds=3) as witness:
        rows = [asdict(gap) for gap in books.gaps(topic, witness)]
    show.listing(rows, title=f"Gaps of {topic}, but for markers", as_json=as_json, empty="none")


def _held_up(line: dict[str, Any], held_up: "Mapping[tuple[str, str], OpenTransaction]") -> dict[str, Any]:
    """With what waits behind a transaction that does not end: for readers the topic ends where it begins."""
    found = held_up.get((line["topic"], str(line["partition"])))
    if found is None or line["verdict"] != "ok":
        return line
    return {**line, "verdict": f"behind a transaction, open for {found.seconds:,.0f} s: {found.waiting:,} offsets wait"}


def _edges(books: "Ledger") -> "tuple[dict[str, dict[str, Edge]], dict[tuple[str, str], OpenTransaction]]":
    """What the broker has, and what holds partitions up; nothing while it is down, the ledger stands without it."""
    from deltaworks.engine.broker import Broker
    from deltaworks.errors import SourceError

    topics = sorted({line.topic for line in books.lines()})
    broker = Broker(bootstrap=settings().kafka, group="deltaworks.ledger", timeout_seconds=3)
    try:
        edges = broker.edges(topics)
        held_up = {(one.topic, one.partition): one for one in broker.open_transactions(edges)}
        ends = broker.reachable(edges, books.offsets())
        return ends, {place: one for place, one in held_up.items() if one.seconds > SECONDS_WARN}
    except SourceError as error:
        show.err.print(f"{error} Shown without the broker's end offsets.", style="yellow")
        return {}, {}
    finally:
        broker.close()
