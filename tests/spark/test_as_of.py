"""What tables said at an earlier time, where Spark is needed to fill them."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from deltaworks.analyst import Analyst, connect
from deltaworks.engine import maintenance
from deltaworks.settings import Settings
from shop.reference import CARTS, CartCommand, cart_events
from tests.chance import seeded
from tests.flows import BY_ARROW, START, Log, Owner, Record, between_commits

TURNS, COMMANDS_PER_TURN = 12, 30
TABLES = COMMANDS, EVENTS, CARTS_TABLE = "silver.cart_commands", "silver.cart_events", "gold.carts"
LATE = (timedelta(0), timedelta(0), timedelta(0), timedelta(minutes=30), timedelta(hours=30))
Carts = list[dict[str, Any]]


def test_carts_as_of_any_time_are_a_replay_from_the_first_command(spark: SparkSession, whole_shop: Settings) -> None:
    """Of those that were known then, with copies and late ones; over compactions, log checkpoints and restarts."""
    chance, log = seeded(), Log()
    owner = Owner(spark, whole_shop, "shop", only=TABLES)
    sent: list[CartCommand] = []
    known: dict[datetime, list[CartCommand]] = {}
    compacted = []
    for turn in range(TURNS):
        asked = [_command(chance, turn, number) for number in range(COMMANDS_PER_TURN)]
        now = START + timedelta(minutes=5 * turn)
        asked.append(CartCommand("k20", now, f"m{turn}-sure", 20, "add", 1, 1))  # of the others all may be refused
        sent += asked
        log.send(map(_record, chance.sample([*asked, *chance.sample(sent, 3)], len(asked) + 3)))
        owner.take(log.batch())
        known[between_commits()] = list(sent)
        if chance.random() < 0.2:
            owner.start()
        if turn % 3 == 2:
            for table in (table for table in owner.flow.tables() if table.name in TABLES):
                compacted.append(maintenance.compact(table, command=turn, committer=BY_ARROW))
                table.checkpoint()

    with connect(whole_shop.lake) as lake:
        corrected = [_compare(lake, moment, commands, sent) for moment, commands in known.items()]

    assert any(compacted)
    assert len(corrected) == TURNS
    assert any(corrected)


def test_what_spark_has_committed_is_found_by_its_time_too(spark: SparkSession, tmp_path: Path) -> None:
    """Large batches and merges are its commits: it writes their times as delta-rs does."""
    folder, known = tmp_path / "lake/silver/numbers", {}
    for count in (1, 3, 2):
        spark.range(count).write.format("delta").mode("overwrite").save(str(folder))
        known[between_commits()] = count

    with connect(tmp_path / "lake") as lake:
        found = [lake.sql("select count(*) from silver.numbers", as_of=moment).rows for moment in known]

    assert found == [[(count,)] for count in known.values()]


def _command(chance: Random, turn: int, number: int) -> CartCommand:
    """A command of this turn, possible or not; some come late, a few a day and more."""
    cart = chance.randrange(20)
    given = START + timedelta(minutes=5 * turn, seconds=chance.randrange(300)) - chance.choice(LATE)
    wish = chance.choice(("add", "add", "add", "remove", "change_quantity", "check_out", "dance"))
    product, quantity = chance.choice((1, 2, 3, None)), chance.choice((1, 2, 0, None))
    return CartCommand(f"k{cart}", given, f"m{turn}-{number}", cart, wish, product, quantity)


def _record(asked: CartCommand) -> Record:
    value = {**asked._asdict(), "given_at": asked.given_at.isoformat()}
    return Record(topic="cart_commands", value=json.dumps(value).encode())


def _compare(lake: Analyst, moment: datetime, known: list[CartCommand], sent: list[CartCommand]) -> bool:
    """Hold the tables of a moment against the commands that were known then.

    Whether later ones have changed what is known today of the time up to their newest.
    """
    columns = ", ".join(CartCommand._fields)
    commands = lake.sql(f"select {columns} from {COMMANDS}", as_of=moment).rows
    carts = lake.arrow(f"select * from {CARTS_TABLE} order by cart_id", as_of=moment)
    events = lake.arrow(f"select * from {EVENTS} limit 0").schema

    found: Carts = carts.to_pylist()
    newest = max(one.given_at for one in known)

    assert set(commands) == set(known)
    assert found == _replay(known, events, carts.schema)
    assert found
    return found != _replay((one for one in sent if one.given_at <= newest), events, carts.schema)


def _replay(commands: Iterable[CartCommand], events: pa.Schema, carts: pa.Schema) -> Carts:
    """The carts that these commands make, by the batch program."""
    rows = [event._asdict() for event in cart_events(sorted(commands, key=lambda one: one[:3]))]
    declared = pa.schema([field for field in events if not field.name.startswith("_")])
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'; create schema silver")
        database.register("rows", pa.Table.from_pylist(rows, schema=declared))
        database.execute("create table silver.cart_events as select * from rows")
        computed: Carts = (
            database.sql(f"{CARTS[CARTS_TABLE]} order by cart_id").to_arrow_table().cast(carts).to_pylist()
        )
    return computed
