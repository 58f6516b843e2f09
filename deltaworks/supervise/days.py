"""The timetable of replays: a partition is a day (UTC), whatever the hour at which runs are scheduled.

Airflow's own CronPartitionTimetable has its partitions where its runs are: one that runs at half past three has none at
midnight, and a range of days would end a day early; one that runs every five minutes would have 288 for a day.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Self

from airflow.timetables.base import DagRunInfo, TimeRestriction
from airflow.timetables.trigger import CronPartitionTimetable
from pendulum import DateTime

KEY_FORMAT = "%Y-%m-%d"
_DAILY = "0 0 * * *"


class Days(CronPartitionTimetable):
    """A partition a day; with a cron expression also scheduled runs, each for the day before it."""

    def __init__(self, cron: str | None = None) -> None:
        """Without `cron` only people, programs and backfills start runs."""
        super().__init__(cron or _DAILY, timezone="UTC", key_format=KEY_FORMAT)
        self._cron = cron
        if cron is None:
            self.description = "Only by hand or as a backfill; a partition is a day"
        else:
            self.description = f"{self.description}, for the day before"

    @property
    def summary(self) -> str:
        """What Airflow's lists show."""
        return self._cron or "by day"

    def serialize(self) -> dict[str, Any]:
        """What `deserialize` makes the same of."""
        return {"cron": self._cron}

    @classmethod
    def deserialize(cls, data: Mapping[str, Any]) -> Self:
        """The same timetable."""
        return cls(data["cron"])

    def next_dagrun_info_v2(
        self, *, last_dagrun_info: DagRunInfo | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """The next scheduled run; None where none is."""
        if self._cron is None:
            return None
        found: DagRunInfo | None = super().next_dagrun_info_v2(
            last_dagrun_info=last_dagrun_info, restriction=restriction
        )
        return found

    def iter_partition_dagrun_infos(self, *, earliest: datetime, latest: datetime) -> Iterable[DagRunInfo]:
        """One run for each day from `earliest` to `latest`, both with it."""
        day, last = (self.localize_partition_datetime(time).start_of("day") for time in (earliest, latest))
        while day <= last:
            yield DagRunInfo(
                run_after=day, data_interval=None, partition_date=day, partition_key=day.strftime(KEY_FORMAT)
            )
            day += timedelta(days=1)

    def _get_partition_date(self, *, run_date: DateTime) -> DateTime:
        return run_date.in_timezone("UTC").start_of("day").subtract(days=1)
