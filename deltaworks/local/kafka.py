"""Kafka as one node (broker and controller in one process), and the project's topics."""

import base64
import re
import shutil
import subprocess
import uuid
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from deltaworks.errors import StackError
from deltaworks.java import java_home
from deltaworks.local.part import Part, Probe
from deltaworks.local.private import private_folder
from deltaworks.settings import LOOPBACK, ROOT, Settings, TopicSettings

TIMESTAMP_TYPE, BY_BROKER = "message.timestamp.type", "LogAppendTime"
_SECONDS_MAX = 30.0
_LOGGING = """\
status=warn
rootLogger.level=info
rootLogger.appenderRef.console.ref=Console
appender.console.type=Console
appender.console.name=Console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1} %m%n
logger.clients.name=org.apache.kafka.clients
logger.clients.level=warn
logger.configs.name=org.apache.kafka.common.config.AbstractConfig
logger.configs.level=warn
logger.values.name=org.apache.kafka.connect.runtime.WorkerConfig
logger.values.level=warn
logger.versions.name=org.apache.kafka.common.utils.AppInfoParser
logger.versions.level=warn
logger.requests.name=org.apache.kafka.connect.runtime.rest.RestServer
logger.requests.level=warn
"""
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    # a record arrives when the broker takes it, whatever a producer's clock says: copies are told by this time
    "log.message.timestamp.type": BY_BROKER,
    "auto.create.topics.enable": "false",  # a misspelt topic is an error, not a new topic
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.retention.minutes": str(365 * 24 * 60),  # where a group stands whose topic is quiet; default a week
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # nobody takes over from the only broker, so to declare it dead while it lives only harms: see broker.py. But less
    # than the 60 s for which a broker asks to be let in: the registration of one that died must not outlast them
    "broker.session.timeout.ms": "45000",
    "broker.heartbeat.interval.ms": "500",  # it is let in at one of them (default 2 s)
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": str(16 * 2**20),  # of a heap of 384 MB; default 128 MB
}


def parts(settings: Settings) -> tuple[Part, ...]:
    """The broker."""
    run = ("kafka.Kafka", _properties(settings))
    return (
        Part(
            name="kafka",
            of="kafka",
            command=(
                *(str(settings.spark_python), "-m", "deltaworks.local.broker"),
                *(str(_folder(settings)), _controller(settings)),
                *java_command(settings, heap="384m", classpath=settings.jars / "broker", run=run),
            ),
            folder=ROOT,
            log=settings.logs / "kafka.log",
            after=("kafka-files",),
            probe=Probe(kind="kafka", host=settings.host_kafka, port=settings.port_kafka),
            port=settings.port_kafka,
            stop_seconds=20,
            hung_seconds=30,  # killed before its registration runs out: then the next one begins without its partitions
        ),
    )


def java_command(
    settings: Settings, *, heap: str, classpath: Path, run: tuple[str, ...], brief: bool = False
) -> tuple[str, ...]:
    """A JVM that stays small, and dies when its memory is used up instead of living on half dead.

    `brief`: it lives for a second or two, so that code had better be ready quickly than be good.
    """
    home = java_home(environment=settings.inherited(), spark_python=settings.spark_python)
    return (
        str(home / "bin" / "java"),
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        *(("-XX:TieredStopAtLevel=1",) if brief else ()),
        f"-Dlog4j2.configurationFile={settings.data / 'config' / 'log4j2.properties'}",
        "-cp",
        f"{classpath}/*",
        *run,
    )


def write_config(settings: Settings) -> None:
    """Write the broker's settings."""
    folder = settings.data / "config"
    private_folder(folder)
    (folder / "log4j2.properties").write_text(_LOGGING)
    Path(_properties(settings)).write_text(_rendered(settings, _folder(settings)))


def format_storage(settings: Settings) -> None:
    """Give the broker's folder its ids, once; beside its place, so that one cut off half way is never used."""
    folder = _folder(settings)
    if (folder / "meta.properties").is_file():
        return
    fresh, config = settings.data / "kafka.new", settings.data / "config" / "kafka-format.properties"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    private_folder(fresh)  # the tool would make it with the user's umask
    config.write_text(_rendered(settings, fresh))
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = ("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(config))
    command = java_command(settings, heap="128m", classpath=settings.jars / "broker", run=tool, brief=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    config.unlink()
    if done.returncode != 0:
        raise StackError("Kafka's storage", f"format failed: {(done.stdout + done.stderr).strip()[-400:]}", "See it")
    fresh.rename(folder)


def create_topics(settings: Settings) -> None:
    """Create the project's topics, and change those that are there to what is declared.

    Raises StackError for a topic with more partitions than declared: partitions cannot be taken away.
    """
    admin = admin_client(settings)
    known = admin.list_topics(timeout=_SECONDS_MAX).topics
    fresh = [
        NewTopic(name, num_partitions=topic.partitions, replication_factor=1, config=topic_config(topic))
        for name, topic in settings.topics.items()
        if name not in known
    ]
    if fresh:
        _wait(admin.create_topics(fresh, request_timeout=_SECONDS_MAX))
    for name, topic in settings.topics.items():
        if name in known:
            _change(admin, name, topic, partitions=len(known[name].partitions))


def differences(settings: Settings) -> Iterator[str]:
    """Where the broker's topics are not what topics.toml declares."""
    admin = admin_client(settings)
    known = admin.list_topics(timeout=_SECONDS_MAX).topics
    for name, topic in settings.topics.items():
        if name not in known:
            yield f"{name} is missing"
            continue
        if len(known[name].partitions) != topic.partitions:
            yield f"{name} has {len(known[name].partitions)} partitions, declared {topic.partitions}"
        resource = ConfigResource(ResourceType.TOPIC, name)
        found = admin.describe_configs([resource])[resource].result(timeout=_SECONDS_MAX)
        for key, value in topic_config(topic).items():
            if found[key].value != value:
                yield f"{name} has {key} {found[key].value}, declared {value}"


def of_producers_time(settings: Settings, topics: Collection[str]) -> Iterator[str]:
    """Which of these topics hand on the time that a producer gave, instead of the broker's when it wrote the record."""
    admin = admin_client(settings)
    known = admin.list_topics(timeout=_SECONDS_MAX).topics
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted({*topics} & known.keys())]
    for resource, answer in (admin.describe_configs(resources) if resources else {}).items():
        if answer.result(timeout=_SECONDS_MAX)[TIMESTAMP_TYPE].value != BY_BROKER:
            yield resource.name


def undeclared(settings: Settings, *, prefix: str | None) -> list[str]:
    """Topics that neither topics.toml declares nor a part has made for itself.

    `prefix`: of the topics that the source's connector makes, in each life of the source.
    """
    there = admin_client(settings).list_topics(timeout=_SECONDS_MAX).topics
    of_source = "" if prefix is None else rf"|{re.escape(prefix)}(-\d+)?\."
    own = re.compile(rf"__|connect_|deltaworks\.published\.{of_source}")
    return sorted(name for name in there if name not in settings.topics and not own.match(name))


def topic_config(topic: TopicSettings) -> dict[str, str]:
    """The broker's settings of a declared topic."""
    if topic.cleanup == "compact":
        # rolls the segment that is written to as well, which is never compacted (KIP-354; by default after a week)
        return {"cleanup.policy": "compact", "max.compaction.lag.ms": _milliseconds(topic.compaction_hours_max)}
    return {"cleanup.policy": "delete", "retention.ms": _milliseconds(topic.retention_hours)}


def _milliseconds(hours: float) -> str:
    return str(round(hours * 3_600_000))


def admin_client(settings: Settings) -> AdminClient:
    """A client for topics and their settings."""
    return AdminClient({"bootstrap.servers": settings.kafka, "socket.timeout.ms": 10_000, "log_level": 3})


def _change(admin: AdminClient, name: str, topic: TopicSettings, *, partitions: int) -> None:
    if partitions > topic.partitions:
        raise StackError(
            f"topics.toml {name}",
            f"declares {topic.partitions} partitions, the broker has {partitions}, and cannot take any away",
            f"Declare {partitions}",
        )
    if partitions < topic.partitions and topic.cleanup == "compact":
        raise StackError(
            f"topics.toml {name}",
            f"declares {topic.partitions} partitions, the broker has {partitions}: keys would move, and their old rows"
            " stay for ever in a compacted topic",
            f"Declare {partitions}, or publish to a new topic",
        )
    if partitions < topic.partitions:
        _wait(admin.create_partitions([NewPartitions(name, topic.partitions)]))
    setting = AlterConfigOpType.SET
    entries = [ConfigEntry(key, value, incremental_operation=setting) for key, value in topic_config(topic).items()]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    _wait(admin.incremental_alter_configs([resource]))


def _wait(answers: dict[Any, Future[Any]]) -> None:
    for subject, answer in answers.items():
        try:
            answer.result(timeout=_SECONDS_MAX)
        except KafkaException as error:
            raise StackError(f"topic {subject}", str(error), "See deltaworks logs kafka") from error


def _properties(settings: Settings) -> str:
    return str(settings.data / "config" / "kafka.properties")


def _folder(settings: Settings) -> Path:
    return settings.data / "kafka"


def _controller(settings: Settings) -> str:
    return f"CONTROLLER://{LOOPBACK}:{settings.port_kafka_controller}"


def _rendered(settings: Settings, folder: Path) -> str:
    values = _SETTINGS | {
        "controller.quorum.voters": f"1@{LOOPBACK}:{settings.port_kafka_controller}",
        "listeners": f"PLAINTEXT://{settings.listen}:{settings.port_kafka},{_controller(settings)}",
        "advertised.listeners": f"PLAINTEXT://{settings.kafka}",
        "log.dirs": str(folder),
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())
