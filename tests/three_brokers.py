"""Three brokers of one cluster, of which two can be stopped and started: a topic of theirs can lose its end.

    with three_brokers(settings) as brokers:
        brokers[2].stop()

The first one is the stack's, as it is declared, and has the controller: it stays.
"""

import base64
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deltaworks.local import kafka
from deltaworks.settings import Settings
from tests.ports import free_ports
from tests.running_stack import wait_until

SECONDS_MAX = 240.0  # some ten seconds, but for a busy machine
QUICK = "broker.session.timeout.ms=10000\n"
"""One that has left may come back when its session is over, which is longer where one broker is all there is."""


@dataclass
class OneBroker:
    """A broker; its log is beside the others', its data in a folder of its own."""

    settings: Settings
    number: int
    config: Path
    process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def start(self) -> None:
        """Start it, or start it again over what it has."""
        command = kafka.java_command(
            self.settings, heap="256m", classpath=self.settings.jars / "broker", run=("kafka.Kafka", str(self.config))
        )
        with (self.settings.logs / f"kafka-{self.number}.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.settings.data, stdout=log, stderr=log)

    def stop(self) -> None:
        """Have it leave; who leads nothing any more, or has nobody to hand on to, leaves at once."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(SECONDS_MAX)
            self.process = None


@contextmanager
def three_brokers(settings: Settings) -> Iterator[Mapping[int, OneBroker]]:
    """Start them, give them by their numbers, and stop them."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    kafka.write_config(settings)
    kafka.format_storage(settings)
    first = settings.data / "config" / "kafka.properties"
    first.write_text(first.read_text() + QUICK)
    brokers = {1: OneBroker(settings, 1, first)} | {number: _further(settings, number) for number in (2, 3)}
    admin = AdminClient({"bootstrap.servers": settings.kafka, "log_level": 2})  # it begins before the brokers

    def there() -> bool:
        with suppress(KafkaException):  # the first one is only beginning
            return len(admin.list_topics(timeout=5).brokers) == len(brokers)
        return False

    try:
        for broker in brokers.values():
            broker.start()
        wait_until(there, what="three brokers are there", seconds_max=SECONDS_MAX)
        yield brokers
    finally:
        for broker in reversed(brokers.values()):  # the controller is asked whether the others may leave
            broker.stop()


def _further(settings: Settings, number: int) -> OneBroker:
    """One under the first one's controller; its folder is as Kafka's tool formats it, which takes seconds."""
    folder = settings.data / f"kafka-{number}"
    folder.mkdir()
    formatted = (settings.data / "kafka" / "meta.properties").read_text().splitlines()
    cluster = next(line for line in formatted if line.startswith("cluster.id="))
    own = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    (folder / "meta.properties").write_text(f"version=1\n{cluster}\nnode.id={number}\ndirectory.id={own}\n")
    values = {
        "process.roles": "broker",
        "node.id": number,
        "controller.quorum.voters": f"1@127.0.0.1:{settings.port_kafka_controller}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}",
        "log.dirs": folder,
        "log.message.timestamp.type": kafka.BY_BROKER,
        "broker.heartbeat.interval.ms": 500,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "log.cleaner.enable": "false",
    }
    config = settings.data / "config" / f"kafka-{number}.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in values.items()) + QUICK)
    return OneBroker(settings, number, config)
