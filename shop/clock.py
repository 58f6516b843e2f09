"""Units of the simulator's time, microseconds since the start of a run, and how they are written in an event."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def clock(start: datetime) -> Callable[[int], str]:
    """A function from microseconds since start to ISO 8601 text; it remembers the last seconds, which repeat."""
    seconds: dict[int, str] = {}
    start_us = microseconds(start)

    def text(since_us: int) -> str:
        second, rest = divmod(start_us + since_us, SECOND)
        prefix = seconds.get(second)
        if prefix is None:
            if len(seconds) > 10_000:  # bounds the memory of a simulator that runs for days
                seconds.clear()
            prefix = seconds[second] = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{prefix}.{rest:06d}Z"

    return text
