"""Members follow shops. One database, one log, two apps that read it: what that promises, while a driver runs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Self

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from deltaworks.analyst import connect
from deltaworks.engine.broker import Broker
from deltaworks.engine.through import Lineage
from deltaworks.settings import ROOT, Settings
from tests.running_driver import SECONDS_MAX, at_work
from tests.running_stack import connector_for, running_stack, wait_until
from tests.tiny_project import Project

TOLD = "told"


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Give a stack with Debezium in which the driver of app feed is at work, one and the same all the time."""
    project = Project(tmp_path_factory.mktemp("follows") / "project", of=ROOT / "tests/follows")
    project.write("connector.json", connector_for("follows", "shops"))
    parts = ("source", "control", "kafka", "connect")
    with running_stack(parts=parts, project=project.folder) as settings, at_work(settings, "feed") as driver:
        yield settings
        assert driver.poll() is None


class Writer:
    """A server of the application: it writes to the database and sends an event, and no transaction is around both."""

    def __init__(self, settings: Settings) -> None:
        """Connect to both."""
        self._database = psycopg.connect(settings.source_dsn(), autocommit=True)
        self._producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def follow(self, member: str) -> None:
        """Commit it."""
        self._database.execute("insert into follows (member, shop) values (%s, 'books')", (member,))

    def unfollow(self, member: str) -> None:
        """Commit it."""
        self._database.execute("delete from follows where member = %s", (member,))

    def tell(self, member: str, *, follows: bool) -> None:
        """Send the event; it is in the topic when this returns."""
        event = json.dumps({"member": member, "shop": "books", "follows": follows})
        self._producer.produce(TOLD, event, key=member)
        assert self._producer.flush(30) == 0


def ask(settings: Settings, query: str) -> list[tuple[Any, ...]]:
    """An analyst's question."""
    with connect(settings.lake) as lake:
        return [tuple(row) for row in lake.sql(query).rows]


def arrives(settings: Settings, table: str, condition: str) -> None:
    """Wait for a row."""
    query = f"select 1 from {table} where {condition}"
    with connect(settings.lake) as lake:
        wait_until(lambda: bool(lake.sql(query).rows), what=f"{condition} in {table}", seconds_max=SECONDS_MAX)


def test_events_of_two_writers_leave_the_database_and_its_log_does_not(feed: Settings) -> None:
    """Each writes, then tells; of ann the second one tells first, so by the events she follows for ever."""
    with Writer(feed) as one, Writer(feed) as other:
        one.follow("bob")
        one.tell("bob", follows=True)
        other.follow("cy")
        other.tell("cy", follows=True)
        arrives(feed, "silver.follows", "member = 'cy'")  # so that a row is there to be deleted
        other.unfollow("cy")
        other.tell("cy", follows=False)

        one.follow("ann")
        other.unfollow("ann")
        other.tell("ann", follows=False)
        one.tell("ann", follows=True)

        one.follow("zoe")  # the log's order is the commits': with her all before her has come
    arrives(feed, "silver.follows", "member = 'zoe'")
    catches_up(feed, "silver.told_follows")

    told = ask(feed, "select member from silver.told_follows where follows order by member")
    by_log = ask(feed, "select member, since from silver.follows order by member")
    assert by_log == database(feed, "select member, since from follows order by member")
    assert [member for member, _ in by_log] == ["bob", "zoe"]
    assert told == [("ann",), ("bob",)]


def database(settings: Settings, query: str) -> list[tuple[str, datetime]]:
    """What the source says, times in UTC."""
    with psycopg.connect(settings.source_dsn(), options="-c timezone=UTC") as connection:
        return list(connection.execute(query).fetchall())


def test_columns_change_in_the_source_while_the_driver_runs(feed: Settings) -> None:
    """One is added, dropped, made wider, renamed; only what does not fit is set aside, and nobody starts it anew."""
    steps = {
        "First": ["insert into shops values ('first', 'First', 1, 'Bath')"],
        "Phoned": [
            "alter table shops add column phone text",
            "insert into shops values ('phoned', 'Phoned', 2, 'Cork', '+43 1')",
        ],
        "Nowhere": ["alter table shops drop column city", "insert into shops values ('nowhere', 'Nowhere', 3)"],
        "Wide": [
            "alter table shops alter column visits type bigint",
            "insert into shops values ('wide', 'Wide', 4), ('too wide', 'Too wide', 2147483648)",
        ],
        "Renamed": [
            "alter table shops rename column name to title",
            "insert into shops (shop, title, visits) values ('renamed', 'Renamed', 5)",
        ],
        "First of all": ["update shops set title = 'First of all' where shop = 'first'"],
    }
    with psycopg.connect(feed.source_dsn(), autocommit=True) as connection:
        for title, statements in steps.items():
            for statement in statements:
                connection.execute(statement)
            arrives(feed, "silver.shops", f"title = '{title}'")  # before the schema changes again

    rows = ask(feed, "select shop, title, visits, city, rest from silver.shops order by visits")
    refused = ask(feed, "select reason, state from silver.shops__quarantine")
    assert rows == [
        ("first", "First of all", 1, None, '{"phone":null}'),
        ("phoned", "Phoned", 2, "Cork", '{"phone":"+43 1"}'),
        ("nowhere", "Nowhere", 3, None, '{"phone":null}'),
        ("wide", "Wide", 4, None, '{"phone":null}'),
        ("renamed", "Renamed", 5, None, '{"phone":null}'),
    ]
    assert refused == [("visits: out of range", "open")]


def send(settings: Settings, first: int, count: int) -> None:
    """Tell of numbered members, to both partitions in turn."""
    producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})
    for number in range(first, first + count):
        event = json.dumps({"member": f"m{number}", "shop": "books", "follows": True})
        producer.produce(TOLD, event, partition=number % 2)
    assert producer.flush(30) == 0


def ends(settings: Settings) -> dict[str, int]:
    """How far the topic goes, per partition."""
    broker = Broker(bootstrap=settings.kafka, group="test.follows")
    edges = broker.edges([TOLD])[TOLD]
    broker.close()
    return {partition: edge.high for partition, edge in edges.items()}


def position(settings: Settings, table: str) -> dict[str, int]:
    """How far a table has read the topic, by its newest commit."""
    return dict(Lineage(settings.lake).processed_through(table).offsets.get(TOLD, {}))


def catches_up(settings: Settings, table: str) -> None:
    """Wait until a table has all that the topic holds."""
    wait_until(lambda: position(settings, table) == ends(settings), what=f"{table} at the end", seconds_max=SECONDS_MAX)


def records(settings: Settings, table: str) -> list[tuple[int, int]]:
    """Partition and offset of every record of the topic that a table has."""
    return ask(settings, f'select "partition", "offset" from {table} where topic = \'{TOLD}\' order by all')


def in_group(settings: Settings, group: str) -> dict[str, int]:
    """What lag tools see: the offsets that a consumer group has committed."""
    looking = Consumer({"bootstrap.servers": settings.kafka, "group.id": group})
    found = looking.committed([TopicPartition(TOLD, partition) for partition in (0, 1)], timeout=30)
    looking.close()
    return {str(one.partition): one.offset for one in found}


def cli(settings: Settings, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line."""
    return subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", *words],
        env=settings.inherited(), cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip


def drain(settings: Settings, app: str) -> None:
    """Let an app take all that is there, and end."""
    done = cli(settings, "run", app, "--drain")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"


def test_two_apps_read_one_topic_and_retention_overruns_the_one_that_is_stopped(feed: Settings) -> None:
    """Each gets every record, at a position of its own; the other's loss is counted in red and is not its own."""
    send(feed, 0, 40)
    drain(feed, "mail")
    catches_up(feed, "bronze.told")
    both = [records(feed, table) for table in ("bronze.told", "bronze.mail")]
    read = position(feed, "bronze.mail")

    send(feed, 40, 20)
    catches_up(feed, "bronze.told")
    stopped = position(feed, "bronze.mail")
    wait_until(
        lambda: in_group(feed, "deltaworks.feed") == ends(feed),
        what="the consumer group at the end", seconds_max=SECONDS_MAX,
    )  # fmt: skip
    admin, kept = AdminClient({"bootstrap.servers": feed.kafka}), TopicPartition(TOLD, 0, stopped["0"] + 4)
    admin.delete_records([kept])[kept].result(timeout=30)
    drain(feed, "mail")
    ledger = cli(feed, "ledger", "--json")
    lines = [line for line in json.loads(ledger.stdout)[0]["topics"] if line["topic"] == TOLD]
    told, mail = (records(feed, table) for table in ("bronze.told", "bronze.mail"))

    assert len(both[0]) >= 40
    assert both[0] == both[1]
    assert stopped == read
    assert set(told) - set(mail) == {(0, read["0"] + number) for number in range(4)}
    assert not set(mail) - set(told)
    assert len(told) == sum(ends(feed).values())
    assert ledger.returncode == 1
    red = "RED: 4 offsets were gone before they were read"
    assert sorted((line["partition"], line["lost"], line["verdict"]) for line in lines) == [
        (0, 0, "ok"), (0, 4, red), (1, 0, "ok"), (1, 0, "ok"),
    ]  # fmt: skip
