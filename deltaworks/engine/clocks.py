"""Clocks, where a wrong one would do harm: what each of them says, and the times that producers give.

Any clock may be wrong, so none decides alone: what would be deleted is bounded by the one that is furthest behind, and
what is believed of a producer by the one that is furthest ahead.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

BY_PRODUCER = "_by_producer"
"""A column of what is read: whether a record's time is its producer's, as on topics that are not LogAppendTime."""
APART_MAX = 60_000_000  # microseconds that clocks may be apart which somebody keeps
_MILLISECOND = 1_000  # in microseconds
_MICROS = pa.timestamp("us", "UTC")
_GOES_ON = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS has the one only, which does not sleep there
log = logging.getLogger("deltaworks.clocks")


def _steady() -> float:
    """Seconds that have passed on this machine, also while it slept, which `time.monotonic` leaves out."""
    return time.clock_gettime(_GOES_ON)


@dataclass(kw_only=True)
class Clocks:
    """This machine's clock, and what others said once and would say by now; microseconds since 1970.

    `wall` gives seconds since 1970, `steady` seconds that nobody sets.
    """

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = _steady
    _others: dict[str, tuple[int, float]] = field(default_factory=dict)
    _behind: bool = False  # whether it is told that all clocks are

    def store_says(self, now: datetime) -> None:
        """It is this time by the control store."""
        self._said("store", now)

    def lake_says(self, last: datetime) -> None:
        """The last owner made its last commit at this time: a clock that was wrong when the machine began was not yet.

        While nobody owned the app this clock stood, so it is behind by so much.
        """
        self._said("lake", last)

    def earliest(self) -> int:
        """What the clock says that is furthest behind."""
        return min(self._now().values())

    def today(self) -> date:
        """The day (UTC) by this machine's clock or the control store's, the earlier one."""
        now = self._now()
        now.pop("lake", None)  # it is behind by as long as nobody owned the app
        return datetime.fromtimestamp(min(now.values()) / 1_000_000, UTC).date()

    def believed_until(self) -> int | None:
        """The latest time that a producer can have given rightly; None, and told, where all clocks were set back."""
        now = self._now()
        lake, latest = now.pop("lake", None), max(now.values())
        if lake is not None and latest + APART_MAX < lake:
            self._tell_behind((lake - latest) // 1_000_000)
            return None
        self._behind = False
        # Kafka has whole milliseconds: what was not a producer's word is told by this one
        return (latest + APART_MAX) // _MILLISECOND * _MILLISECOND + 1

    def _tell_behind(self, seconds: int) -> None:
        if not self._behind:
            self._behind = True
            log.warning(
                "the clocks of this machine and of the control store are %d s behind the last commit: whatever time a"
                " producer gives is kept. Set them right, then start the app anew",
                seconds,
            )

    def _now(self) -> dict[str, int]:
        passed = self.steady()
        found = {name: micros + round((passed - at) * 1_000_000) for name, (micros, at) in self._others.items()}
        return {"machine": round(self.wall() * 1_000_000), **found}

    def _said(self, who: str, at: datetime) -> None:
        self._others[who] = (round(at.timestamp() * 1_000_000), self.steady())


def believed(rows: pa.Table, until: int | None) -> pa.Table:
    """Records as bronze keeps them: a time that a producer gave is at most this one, in microseconds since 1970."""
    if BY_PRODUCER not in rows.column_names:
        return rows
    times, theirs = rows["timestamp"].cast(_MICROS), rows[BY_PRODUCER]
    rows = rows.drop_columns([BY_PRODUCER])
    if until is None:
        return rows
    bound = pa.scalar(until, pa.int64()).cast(_MICROS)
    times = pc.if_else(pc.and_(theirs, pc.greater(times, bound)), bound, times)
    return rows.set_column(rows.column_names.index("timestamp"), "timestamp", times)


def believed_spark(rows: DataFrame, until: int | None) -> DataFrame:
    """The same for rows that are too many to collect."""
    if BY_PRODUCER not in rows.columns:
        return rows
    if until is not None:
        bound = F.timestamp_micros(F.lit(until))
        ahead = F.col(BY_PRODUCER) & (F.col("timestamp") > bound)
        rows = rows.withColumn("timestamp", F.when(ahead, bound).otherwise(F.col("timestamp")))
    return rows.drop(BY_PRODUCER)


def disbelieved(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which records' times in bronze are not those that their producers gave."""
    micros = times.cast(_MICROS).cast(pa.int64())
    whole = pc.multiply(pc.divide(micros, _MILLISECOND), _MILLISECOND)
    return pc.not_equal(micros, whole)


def disbelieved_spark() -> Column:
    """The same for rows that are too many to collect."""
    return F.unix_micros("timestamp") % _MILLISECOND != 0
