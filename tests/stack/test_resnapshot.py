"""The real connector reads anew: one table beside the stream, or all, in a life of the source that its records tell."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer

from deltaworks.errors import StackError
from deltaworks.local import connect, signals, source, stack
from deltaworks.local.doctor import slot_of
from deltaworks.settings import ROOT, Settings
from tests.running_stack import running_stack, wait_until


def changes(settings: Settings) -> list[dict[str, Any]]:
    """Every change record of the topic so far, committed ones only."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka, "group.id": "look", "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True,
        }
    )  # fmt: skip
    consumer.subscribe(["shop.changes"])
    found = []
    while (message := consumer.poll(30)) is not None:
        if message.error() is not None:
            break
        document = json.loads(message.value() or b"null")
        if isinstance(document, dict) and "source" in document:
            found.append(document)
    consumer.close()
    return found


def markers(settings: Settings) -> list[tuple[str, str, str, str]]:
    """Life, operation, table and snapshot marker of every change record but the heartbeat's."""
    return [
        (one["source"]["name"], one["op"], one["source"]["table"], str(one["source"]["snapshot"]))
        for one in changes(settings)
    ]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Give the shop's source and connector as they were before there were signals, and two customers in the topic."""
    project = tmp_path_factory.mktemp("project")
    (project / "dags").mkdir()
    (project / "topics.toml").write_text((ROOT / "topics.toml").read_text())
    (project / "deltaworks.toml").write_text('[source]\nschema = "schema.sql"\nconnector = "connector.json"\n')
    for name, text in of_before().items():
        (project / name).write_text(text)
    with running_stack(parts=("connect",), project=project) as settings:
        with psycopg.connect(settings.source_dsn(), autocommit=True) as connection:
            for name in ("ann", "bob"):
                add = "insert into customers (name, email, country) values (%s, 'a@example.org', 'AT')"
                connection.execute(add, (name,))
            connection.execute("insert into products (name, category, price) values ('pen', 'office', 1)")
        wait_until(lambda: len(markers(settings)) >= 3, what="two customers and a product are captured")
        yield settings


def of_before() -> dict[str, str]:
    """Texts of the shop's files without the signal table."""
    schema, connector = ((ROOT / "shop" / name).read_text() for name in ("schema.sql", "connector.json"))
    made = schema[schema.index("create table if not exists public.signals") : schema.index("-- Full")]
    for text in (made, ",\n    public.signals", "grant insert on public.signals to debezium;\n"):
        schema = schema.replace(text, "")
    connector = connector.replace('    "signal.data.collection": "public.signals",\n', "")
    connector = connector.replace("(?!(?:heartbeat|signals)$)", "(?!heartbeat)")
    assert "signals" not in schema + connector
    return {"schema.sql": schema, "connector.json": connector}


def test_one_table_is_read_beside_the_stream(shop: Settings) -> None:
    """In a source that is there already, once `up` has given it the signal table: no other table, and no new life."""
    with pytest.raises(StackError, match="names no signal table"):
        signals.read_beside(shop, ["public.customers"], signal="one")
    for name in ("schema.sql", "connector.json"):
        (shop.project / name).write_text((ROOT / "shop" / name).read_text())
    with pytest.raises(StackError, match=r"differ from the project's file\. Run .deltaworks up"):
        signals.read_beside(shop, ["public.customers"], signal="one")
    stack.up(shop, parts=("connect",))
    before = len(markers(shop))

    asked = signals.read_beside(shop, ["public.customers"], signal="one")
    wait_until(lambda: signals.over(shop, asked), what="the customers are read")
    with psycopg.connect(shop.source_dsn(), autocommit=True) as connection:
        connection.execute("update customers set name = 'bert' where name = 'bob'")
        marks = connection.execute("select type, count(*) from signals group by 1 order by 1").fetchall()
    wait_until(lambda: markers(shop)[-1][1] == "u", what="the update is captured")

    read = ("shop", "r", "customers", "incremental")
    assert markers(shop)[before:] == [read, read, ("shop", "u", "customers", "None")]
    assert [kind for kind, _ in marks] == ["execute-snapshot", "snapshot-window-close", "snapshot-window-open"]
    assert (shop.project / "connector.json").read_text() == (ROOT / "shop" / "connector.json").read_text()


def test_a_new_life_reads_the_source_anew(shop: Settings) -> None:
    """Under a counted prefix, marked at its end, with a slot of its own; the slot of the life before is gone."""
    first = markers(shop)

    before, after = source.resnapshot(shop)

    wait_until(lambda: any(one[3] == "last" for one in markers(shop)), what="the snapshot has ended")
    with psycopg.connect(shop.source_dsn(), autocommit=True) as connection:
        connection.execute("update customers set name = 'carl' where name = 'ann'")
    wait_until(lambda: markers(shop)[-1][1] == "u", what="the update is captured")
    found = markers(shop)[len(first) :]
    old, new = slot_of(shop, before.slot), slot_of(shop, after.slot)

    assert (before.prefix, after.prefix, after.slot) == ("shop", "shop-1", "shop_slot_1")
    assert {one[0] for one in first} == {"shop"}
    assert [one[1:3] for one in found[:3]] == [("r", "customers"), ("r", "customers"), ("r", "products")]
    assert found[2][3] == "last"
    assert found[3:] == [("shop-1", "u", "customers", "None")]  # the connector leaves its default out
    assert old is None
    assert new is not None
    assert new["active"]
    assert connect.committed_lsn(shop) is not None


def test_a_route_that_would_lose_the_new_life_is_refused(tmp_path: Path) -> None:
    """Nothing is changed then."""
    path = tmp_path / "connector.json"
    text = (ROOT / "shop" / "connector.json").read_text().replace("(?:-[0-9]+)?", "")
    path.write_text(text)

    with pytest.raises(StackError, match=r"transforms.route.regex does not fit shop-1.public.customers"):
        source.raise_life(path)

    assert path.read_text() == text
