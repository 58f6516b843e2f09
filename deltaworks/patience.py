"""Questions asked again while a broker cannot answer them yet."""

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

ASK_AGAIN_SECONDS = 0.2
_ELECTING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_AWAY = {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001  # public names
_Answer = TypeVar("_Answer")


def no_answer(error: KafkaException, *, away: bool = True) -> bool:
    """Whether it says only that the broker cannot answer now: it is electing or, with `away`, not there at all."""
    code = error.args[0].code()
    return code in _ELECTING or (away and code in _AWAY)


def patiently(ask: Callable[[], _Answer], *, seconds_max: float, away: bool = False) -> _Answer:
    """Ask again while the broker has only just started: it leads its partitions and groups a moment later.

    With `away` also while it does not answer at all. Raises the KafkaException of the last try.
    """
    until = time.monotonic() + seconds_max
    while True:
        try:
            return ask()
        except KafkaException as error:
            if not no_answer(error, away=away) or time.monotonic() > until:
                raise
            time.sleep(ASK_AGAIN_SECONDS)  # it does not tell when it has elected
