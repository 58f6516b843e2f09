"""Half an hour of the shop at work with three kills; then every table is proved, and a row changed by hand is named.

    .venv/spark/bin/python -m tests.chaos.proved --minutes 30

It runs the whole stack, Airflow included, on free ports and in a scratch folder. Page views come 5 % late, 2 % twice,
1 % broken and out of order. Exit code 1 if a table is not proved, or if one with a changed row is.
"""

import shutil
import time
from datetime import timedelta
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
from tests.chaos.books import balance
from tests.chaos.busy import Order, run_and_leave, said
from tests.chaos.shopping import Shopping
from tests.chaos.victims import draw, kill
from tests.intruder import Intruder
from tests.running_stack import running_stack, wait_until

KILLS = 3
LARGE = ("--customers", "1200", "--products", "1200", "--history-days", "1100", "--history-orders", "3300")
"""A shop whose tables have a thousand keys to compare, the one with a row a day too."""
KEYS_MIN = 1_000
FEW_SHARE = 0.5
"""Tables of windows have no more rows than there were windows meanwhile: so much of them has to be compared."""
_SETTLE_SECONDS_MAX = 300.0
_DRIVER_SECONDS_MAX = 300.0


def run(minutes: float, seed: int) -> list[str]:
    """The minutes, and what is wrong afterwards."""
    chance = Random(seed)
    with running_stack(parts=("source", "control", "kafka", "connect", "airflow"), project=ROOT) as settings:
        found = catalog.load(settings.project)
        wrong = _work(settings, found, minutes, chance)
        tables = [one for one in found.tables.values() if not isinstance(one.table.kept_as, Raw)]
        wrong += [told for table in tables if (told := _proved(settings, table))]
        wrong += [told for table in tables if (told := _named(settings, table, chance))]
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
            store.desire(app, "running", by="chaos")
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


def _named(settings: Settings, table: Declared, chance: Random) -> str:
    """Change one row in a copy of the lake, by hand; what is wrong if the proof does not name it."""
    copy = settings.changed(data=settings.data / "changed")
    shutil.copytree(settings.lake, copy.lake)
    try:
        column, key = _change(copy, table, chance)
        order = _prove(copy, table)
    finally:
        shutil.rmtree(copy.data)
    names = all(str(value) in order.said for value in key.values())
    if order.code == 1 and names:
        return ""
    return f"{order.words} after {column} of {key} was changed: exit code {order.code}: {order.said}"


def _change(settings: Settings, table: Declared, chance: Random) -> tuple[str, dict[str, Any]]:
    """Change a value of one row by chance; which column, and the row's key."""
    rows = deltalake.DeltaTable(str(settings.lake / table.name.replace(".", "/"))).to_pyarrow_table()
    by = identity(table)
    column = next(one.name for one in table.columns if one.name not in by and one.type in ("bigint", "string"))
    row = rows.slice(chance.randrange(rows.num_rows), 1).to_pylist()[0]
    key = {name: row[name] for name in by}
    where = " and ".join(_is(name, value) for name, value in key.items())
    Intruder(settings, table.name).update(column, "42424242" if isinstance(row[column], int) else "'by hand'", where)
    return column, {name: value for name, value in key.items() if not hasattr(value, "year")}


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
    rows = deltalake.DeltaTable(str(settings.lake / table.name.replace(".", "/"))).count()
    least = KEYS_MIN if rows >= KEYS_MIN else max(1, int(FEW_SHARE * rows))
    order = said(settings, "prove", table.name, "--keys-min", str(least), all_of_it=True)
    out.print(f"  {order.words}: {order.code}  {order.said[:160]}", markup=False)
    return order


def main(
    minutes: Annotated[float, typer.Option(min=0.5, help="How long the shop works.")] = 30.0,
    seed: Annotated[
        int | None, typer.Option(help="Draws events, kills and the changed rows; default: by chance.")
    ] = None,
) -> None:
    """Work, kill, prove."""
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    out.print(f"seed {seed}")
    found = run(minutes, seed)
    for one in found:
        out.print(one, markup=False, soft_wrap=True)
    out.print("nothing found" if not found else f"{len(found)} found")
    if found:
        raise typer.Exit(1)


if __name__ == "__main__":
    run_and_leave(main)
