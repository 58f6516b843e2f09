"""How long to wait before an app's next driver, after so many that failed early in a row."""

FAILURES_MAX = 6  # the next one makes Airflow's run fail, for people to see; attempts go on, minutes apart
_WAITS_SECONDS = (0, 0, 10, 20, 40, 60)
_WAIT_SECONDS_MAX = 600


def wait_seconds(failures: int) -> float:
    """Seconds between the end of one driver and the start of the next: 0 after a good life, at most ten minutes."""
    if failures < FAILURES_MAX:
        return _WAITS_SECONDS[failures]
    return min(_WAIT_SECONDS_MAX, 60.0 * 2.0 ** min(failures - FAILURES_MAX, 10))
