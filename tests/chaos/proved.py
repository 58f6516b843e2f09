"""Half an hour of the shop at work with three kills; then every table is proved, and a row changed by hand is named.

    .venv/spark/bin/python -m tests.chaos.proved --minutes 30

It runs the whole stack, Airflow included, on free ports and in a scratch folder. Events come 5 % late, 2 % twice,
1 % broken and out of order; some of a week are there before. Exit code 1 if a table is not proved, or if one with a
changed row is, or if that row is not named.
"""

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from random import Random, SystemRandom
from typing import Annotated, Any

import deltalake
import typer

from deltaworks import catalog
from deltaworks.catalog import Declared
from deltaworks.cli.show import out
from deltaworks.control import Store
from deltaworks.engine.prove import identity
from deltaworks.settings import ROOT, Settings
from deltaworks.words.keeping import Raw
from shop.events import TOPICS
from shop.topic import TOPIC
from tests.chaos.books import balance
from tests.chaos.busy import Order, run_and_leave, said
from tests.chaos.shopping import Shopping
from tests.chaos.victims import draw, kill
from tests.intruder import Intruder
from tests.producers_time import producers_time
from tests.running_stack import running_stack, wait_until

KILLS = 3
LARGE = (
    "--customers", "1200", "--products", "1200", "--history-days", "1100", "--history-orders", "3300",
    "--past-days", "6.98", "--past-views", "30000", "--past-events", "120000",
)  # fmt: skip
"""A shop whose tables have a thousand keys to compare, those with a row a day or one for ten minutes too.

A week, as long as topics keep their messages: Kafka deletes them by the segment, whose newest one counts.
"""
_SETTLE_SECONDS_MAX = 300.0
_DRIVER_SECONDS_MAX = 300.0
_AT_ONCE = 2  # proofs; much of one is starting Spark


def run(minutes: float, seed: int, only: Sequence[str] = ()) -> list[str]:
    """The minutes, and what is wrong afterwards, with all tables or `only` these."""
    chance = Random(seed)
    with running_stack(parts=("source", "control", "kafka", "connect", "airflow"), project=ROOT) as settings:
        found = catalog.load(settings.project)
        tables = [one for one in found.tables.values() if not isinstance(one.table.kept_as, Raw)]
        if only:
            tables = [found[name] for name in only]
        with producers_time(settings, [TOPIC, *TOPICS]):
            wrong = _work(settings, found, minutes, chance)
        seeds = [chance.getrandbits(32) for _ in tables]
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as proving:
            wrong += filter(None, proving.map(partial(_proved, settings), tables))
            wrong += filter(None, proving.map(partial(_named, settings), tables, seeds))
    return wrong


def _work(settings: Settings, found: catalog.Catalog, minutes: float, chance: Random) -> list[str]:
    """Let the shop work, kill drivers meanwhile; all is taken and nobody works any more when this ends."""
    seconds = 60 * minutes
    moments = sorted(chance.uniform(0.1, 0.9) * seconds for _ in range(KILLS))
    victims = draw(chance, apps=found.apps, driver_kills=KILLS, parts=())
    with (
        Store(settings.control_dsn()) as store,
        Shopping(settings, seed=chance.randrange(2**31), options=LARGE) as shopping,
    ):
        store.declare_apps(found.apps)
        for app in found.apps:
            store.desire(app, "running", by="chaos", reason="a drill")
        wait_until(
            lambda: all(_works(store, app) for app in found.apps), what="drivers", seconds_max=_DRIVER_SECONDS_MAX
        )
        began, killed = time.monotonic(), dict.fromkeys(found.apps, 0)
        for moment, victim in zip([*moments, seconds], [*victims, None], strict=True):
            while time.monotonic() - began < moment:
                shopping.must_go_on()
                time.sleep(0.5)  # the minutes asked for
            if victim is not None:
                app = victim.name
                wait_until(
                    lambda app=app: _works(store, app, after=killed[app]),  # type: ignore[misc]  # the loop's own
                    what=f"a driver of {app} to kill", seconds_max=_DRIVER_SECONDS_MAX,
                )  # fmt: skip
                killed[app] = _epoch(store, app)
                out.print(f"  {timedelta(seconds=round(moment))}  killed {victim}, pid {kill(settings, store, victim)}")
        sent = shopping.stop()
    ended = balance(settings, seconds_max=_SETTLE_SECONDS_MAX)
    out.print(f"sent {sent}", markup=False, soft_wrap=True)
    stopped = [said(settings, "app", "stop", app, "--wait") for app in found.apps]
    return [*(f"ledger: {one}" for one in ended.findings), *(one.words for one in stopped if one.code)]


def _works(store: Store, app: str, *, after: int = 0) -> bool:
    """Whether a driver is at work that came after that epoch; one that was killed holds its lease for a while."""
    lease, beat = store.lease(app), store.heartbeat(app)
    if lease is None or not lease.live or lease.epoch <= after:
        return False
    return beat is not None and (beat.epoch, beat.state) == (lease.epoch, "running")


def _epoch(store: Store, app: str) -> int:
    lease = store.lease(app)
    return 0 if lease is None else lease.epoch


def _proved(settings: Settings, table: Declared) -> str:
    order = _prove(settings, table)
    return "" if order.code == 0 and "proved" in order.said else f"{order.words}: exit code {order.code}: {order.said}"


def _named(settings: Settings, table: Declared, seed: int) -> str:
    """Change one row in a copy of the lake, by hand; what is wrong if the proof does not name it, and it alone."""
    copy = settings.changed(data=settings.data / "changed" / table.name)
    shutil.copytree(settings.lake, copy.lake)
    try:
        column, key = _change(copy, table, Random(seed))
        order = _prove(copy, table)
    finally:
        shutil.rmtree(copy.data)
    named = ", ".join(f"{name} {value}" for name, value in key.items())
    words = ("0 missing, 0 too many, 1 with other values", " ".join(f"{named} streamed".split()))
    if order.code == 1 and all(word in order.said for word in words):
        return ""
    return f"{order.words} after {column} of {key} was changed: exit code {order.code}: {order.said}"


def _change(settings: Settings, table: Declared, chance: Random) -> tuple[str, dict[str, Any]]:
    """Change a value of one row by chance; which column, and the row's key."""
    rows = deltalake.DeltaTable(str(settings.lake / table.name.replace(".", "/"))).to_pyarrow_table()
    by = identity(table)
    column = next(one for one in table.columns if one.name not in by and one.type in ("bigint", "int", "string"))
    row = rows.slice(chance.randrange(rows.num_rows), 1).to_pylist()[0]
    key = {name: row[name] for name in by}
    where = " and ".join(_is(name, value) for name, value in key.items())
    Intruder(settings, table.name).update(column.name, "'by hand'" if column.type == "string" else "42424242", where)
    return column.name, key


def _is(name: str, value: Any) -> str:
    match value:
        case None:
            return f"{name} is null"
        case int():
            return f"{name} = {value}"
        case str():
            return f"{name} = '" + value.replace("'", "''") + "'"
        case _:
            return f"cast({name} as string) like '{str(value)[:19].replace(' ', '_')}%'"


def _prove(settings: Settings, table: Declared) -> Order:
    order = said(settings, "prove", table.name, all_of_it=True)
    out.print(f"  {order.words}: {order.code}  {order.said[:160]}", markup=False)
    return order


def main(
    minutes: Annotated[float, typer.Option(min=0.5, help="How long the shop works.")] = 30.0,
    only: Annotated[list[str] | None, typer.Option(help="Prove this table; again for more. Default: all.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Draws events, kills and the changed rows; default: by chance.")
    ] = None,
) -> None:
    """Work, kill, prove."""
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    out.print(f"seed {seed}")
    found = run(minutes, seed, only or ())
    for one in found:
        out.print(one, markup=False, soft_wrap=True)
    out.print("nothing found" if not found else f"{len(found)} found")
    if found:
        raise typer.Exit(1)


if __name__ == "__main__":
    run_and_leave(main)
