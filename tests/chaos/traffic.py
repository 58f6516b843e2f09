"""What flows while faults are done: events that each sender numbers from 1 on, and money that only changes hands."""

import json
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from random import Random
from typing import Self

import psycopg
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from deltaworks.settings import Settings

SENDERS, ACCOUNTS = 5, 8
_PATIENCE_SECONDS = 900  # longer than anything is away
_EACH_SECONDS = 0.05
_TRANSFER = """
    insert into transfers (transfer_id, giver, taker, amount) values (%s, %s, %s, %s) on conflict do nothing"""


class Traffic:
    """Sends until it is left; what it has heard of as taken is in `sent` (per sender) and `transferred`."""

    def __init__(self, settings: Settings, *, seed: int) -> None:
        """Connect to the broker."""
        self.sent: Counter[int] = Counter()
        self.transferred = 0
        self.errors: list[str] = []
        self._settings, self._chance = settings, Random(seed)
        self._numbers: Counter[str] = Counter()
        self._numbered = self._producer(idempotent=True)
        self._spare = self._producer(idempotent=False)  # its topic is made anew: an idempotent one would give up
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._transfer)]

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; what was sent is taken then."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60)
        if left := self._numbered.flush(60):
            self.errors.append(f"{left} events were not taken")

    def _producer(self, *, idempotent: bool) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._settings.kafka, "acks": "all", "enable.idempotence": idempotent,
                "message.timeout.ms": _PATIENCE_SECONDS * 1000, "reconnect.backoff.max.ms": 2_000, "log_level": 2,
                "topic.metadata.refresh.interval.ms": 5_000,  # a new partition gets its share soon
            }
        )  # fmt: skip

    def _send(self) -> None:
        """An event every so often; each third one to the spare topic too."""
        turn = 0
        while not self._stop.wait(_EACH_SECONDS):
            turn += 1
            sender = self._chance.randint(1, SENDERS)
            self._produce(self._numbered, "numbered", sender)
            if turn % 3 == 0:
                self._produce(self._spare, "spare", sender)

    def _produce(self, producer: Producer, topic: str, sender: int) -> None:
        self._numbers[f"{topic}-{sender}"] += 1
        number = self._numbers[f"{topic}-{sender}"]
        event = {
            "event_id": f"{topic}-{sender}-{number}",
            "sent_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "sender": sender,
            "number": number,
        }

        def taken(error: KafkaError | None, _: Message) -> None:
            if error is None and topic == "numbered":
                self.sent[sender] = max(self.sent[sender], number)
            elif topic == "numbered":
                self.errors.append(str(error))

        try:
            producer.produce(topic, json.dumps(event).encode(), str(sender).encode(), on_delivery=taken)
            producer.poll(0)
        except (BufferError, KafkaException) as error:
            if topic == "numbered":
                self.errors.append(str(error))

    def _transfer(self) -> None:
        """A transfer every so often, each tried until the database has it."""
        number = 0
        while not self._stop.is_set():
            number += 1
            giver, taker = self._chance.sample(range(1, ACCOUNTS + 1), 2)
            values = (number, giver, taker, f"{self._chance.randrange(1, 10_000) / 100:.2f}")
            while not self._stop.is_set() and not self._transferred(values):
                time.sleep(0.2)

    def _transferred(self, values: tuple[object, ...]) -> bool:
        try:
            with psycopg.connect(self._settings.source_dsn(), connect_timeout=2, autocommit=True) as connection:
                connection.execute(_TRANSFER, values)
        except psycopg.Error:
            return False
        self.transferred = int(str(values[0]))
        self._stop.wait(2 * _EACH_SECONDS)
        return True
