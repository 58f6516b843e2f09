"""Lengths of time, written as words: `minutes(10)`."""

from datetime import timedelta


def seconds(count: float) -> timedelta:
    """So many seconds."""
    return timedelta(seconds=count)


def minutes(count: float) -> timedelta:
    """So many minutes."""
    return timedelta(minutes=count)


def hours(count: float) -> timedelta:
    """So many hours."""
    return timedelta(hours=count)


def days(count: float) -> timedelta:
    """So many days."""
    return timedelta(days=count)
