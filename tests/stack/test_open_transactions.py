"""Transactions that do not end: to readers the topic looks finished, while records wait behind them."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from msgspec import structs

from deltaworks.cli import held_up
from deltaworks.engine.broker import Broker
from deltaworks.settings import ROOT, Settings
from tests.running_stack import wait_until
from tests.stack.conftest import StartParts
from tests.stack.test_gaps import make, transactions

TOPIC = "page_views"


@pytest.fixture
def settings(stack: StartParts) -> Settings:
    """Give the settings of a stack whose broker runs and has the project's topics."""
    return stack(parts=("kafka",))


@pytest.fixture
def broker(settings: Settings) -> Iterator[Broker]:
    """Give who asks it."""
    broker = Broker(bootstrap=settings.kafka, group="test")
    yield broker
    broker.close()


def test_what_waits_behind_an_open_transaction_is_told(
    settings: Settings, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the offset where it begins; nothing of one that has ended, whatever markers stand at the end."""
    before = broker.open_transactions(broker.edges([TOPIC]))
    hanging = Producer({"bootstrap.servers": settings.kafka, "transactional.id": "hanging"})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce(TOPIC, b"one", partition=0)
    hanging.flush(30)
    honest = Producer({"bootstrap.servers": settings.kafka})
    for _ in range(10):
        honest.produce(TOPIC, b"another", partition=0)
    honest.flush(30)

    edges = broker.edges([TOPIC])
    [found] = broker.open_transactions(edges)
    rows = list[dict[str, object]]()
    for warn, fail in ((1e6, 1e6), (-1.0, 1e6), (-1.0, -1.0)):
        monkeypatch.setattr(held_up, "SECONDS_WARN", warn)
        monkeypatch.setattr(held_up, "SECONDS_MAX", fail)
        rows += held_up.look(structs.replace(settings, project=ROOT))  # which has tables
    hanging.commit_transaction(30)
    # its marker is written after it was said to be committed
    wait_until(lambda: broker.open_transactions(broker.edges([TOPIC])) == [], what="the transaction has ended")

    assert before == []
    assert (found.topic, found.partition, found.first, found.waiting) == (TOPIC, "0", edges[TOPIC]["0"].high, 11)
    assert 0 <= found.seconds < 60
    assert [row["verdict"] for row in rows] == ["ok", "warn", "fail"]
    assert "page_views/0: one is open since offset 0" in str(rows[1]["finding"])
    assert "11 offsets wait" in str(rows[1]["finding"])


def test_a_transaction_that_was_aborted_holds_nothing_up(settings: Settings, broker: Broker) -> None:
    """Its records are there, and nobody waits for them."""
    make(settings, "ended")
    transactions(settings, "ended", "commit", "abort")

    edges = broker.edges(["ended"])

    assert edges["ended"]["0"].high > 0
    assert broker.open_transactions(edges) == []
