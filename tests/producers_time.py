"""Topics whose messages came when their producers say, as is Kafka's default; the local stack's broker says itself."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from deltaworks.local.kafka import admin_client
from deltaworks.settings import Settings


@contextmanager
def producers_time(settings: Settings, topics: Iterable[str]) -> Iterator[None]:
    """Have these topics take their producers' time meanwhile. A past beyond their retention would be deleted."""
    admin, names = admin_client(settings), list(topics)

    def change(how: AlterConfigOpType) -> None:
        entry = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=how)
        resources = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry]) for name in names]
        for answer in admin.incremental_alter_configs(resources).values():
            answer.result(timeout=30)

    change(AlterConfigOpType.SET)
    try:
        yield
    finally:
        change(AlterConfigOpType.DELETE)
