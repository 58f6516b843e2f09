"""The real connector begins anew: its records say where a snapshot ends, and which life of the source they are of."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer

from deltaworks.errors import StackError
from deltaworks.local import connect, source
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


def test_a_new_life_reads_the_source_anew(tmp_path: Path) -> None:
    """Under a counted prefix, marked at its end, with a slot of its own; the slot of the life before is gone."""
    project = tmp_path / "project"
    (project / "dags").mkdir(parents=True)
    (project / "topics.toml").write_text((ROOT / "topics.toml").read_text())
    (project / "connector.json").write_text((ROOT / "shop" / "connector.json").read_text())
    text = f'[source]\nschema = "{ROOT}/shop/schema.sql"\nconnector = "connector.json"\n'
    (project / "deltaworks.toml").write_text(text)
    with running_stack(parts=("connect",), project=project) as settings:
        with psycopg.connect(settings.source_dsn("shop"), autocommit=True) as connection:
            for name in ("ann", "bob"):
                add = "insert into customers (name, email, country) values (%s, 'a@example.org', 'AT')"
                connection.execute(add, (name,))
            wait_until(lambda: len(markers(settings)) >= 2, what="two customers are captured")

            before, after = source.resnapshot(settings)

            wait_until(lambda: any(one[3] == "last" for one in markers(settings)), what="the snapshot has ended")
            connection.execute("update customers set name = 'carl' where name = 'ann'")
            wait_until(lambda: markers(settings)[-1][1] == "u", what="the update is captured")
        found = markers(settings)
        old, new = slot_of(settings, before.slot), slot_of(settings, after.slot)
        read = connect.committed_lsn(settings)

    assert (before.prefix, after.prefix, after.slot) == ("shop", "shop-1", "shop_slot_1")
    assert {one[0] for one in found[:2]} == {"shop"}
    assert [one[1:3] for one in found[2:4]] == [("r", "customers"), ("r", "customers")]
    assert found[3][3] == "last"
    assert found[-1] == ("shop-1", "u", "customers", "None")  # the connector leaves its default out
    assert old is None
    assert new is not None
    assert new["active"]
    assert read is not None


def test_a_route_that_would_lose_the_new_life_is_refused(tmp_path: Path) -> None:
    """Nothing is changed then."""
    path = tmp_path / "connector.json"
    text = (ROOT / "shop" / "connector.json").read_text().replace("(?:-[0-9]+)?", "")
    path.write_text(text)

    with pytest.raises(StackError, match=r"transforms.route.regex does not fit shop-1.public.customers"):
        source.raise_life(path)

    assert path.read_text() == text
