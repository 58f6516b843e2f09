"""`wait`: read your own writes."""

from dataclasses import asdict
from typing import Annotated

import typer

from deltaworks.cli import show
from deltaworks.cli.context import settings
from deltaworks.errors import DeltaworksError, NotArrivedError
from deltaworks.settings import Settings


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command()(wait)


def wait(
    *,
    table: Annotated[str, typer.Option(help="Name of the table, such as gold.daily_orders.")],
    topic: Annotated[str, typer.Option(help="The topic that the record was sent to.")],
    partition: Annotated[int, typer.Option(min=0, help="The partition, by the broker's receipt.")],
    offset: Annotated[int, typer.Option(min=0, help="The record's offset, by the broker's receipt.")],
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait.")] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Wait until a table contains a record; exit 1 if it does not in time, or was refused, with the reason."""
    from deltaworks import catalog
    from deltaworks.engine.arrival import wait_for

    now = settings()
    found = catalog.load(now.project)
    topics = sorted(set(found.topics_below(table)))  # raises for an unknown table, with the nearest name
    if topic not in topics:
        raise typer.BadParameter(f"{table} is made from {', '.join(topics)}.", param_hint="--topic")
    try:
        arrived = wait_for(
            now.lake, table=table, topic=topic, partition=partition, offset=offset, timeout_seconds=timeout
        )
    except NotArrivedError as error:
        if as_json:
            missing = {"arrived": False, "table": table, "finding": error.finding}
            show.listing([missing], title="wait", as_json=True)
        show.err.print(str(error), markup=False, soft_wrap=True)
        show.err.print(_driver(now, found[table].table.app), markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    if as_json:
        show.listing([{"arrived": True, **asdict(arrived)}], title="wait", as_json=True)
    else:
        show.out.print(f"{table} version {arrived.version} contains {topic}/{partition}/{offset}", soft_wrap=True)


def _driver(now: Settings, app: str) -> str:
    """What the app's driver does meanwhile; nothing is known while the control store is away."""
    from deltaworks.control import Store

    try:
        with Store(now.control_dsn(), application="deltaworks cli") as store:
            wanted, beat, lease = store.app(app).desired, store.heartbeat(app), store.lease(app)
    except DeltaworksError as error:
        return f"What app {app} does is not known: {error}"
    if lease is None or not lease.live or beat is None:
        return f'App {app} is wanted {wanted}, and no driver owns it: "deltaworks app start {app}"'
    return f"App {app} is wanted {wanted}; its driver is {beat.state}, last heard of {beat.age_seconds:.0f} s ago"
