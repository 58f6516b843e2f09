"""Times and versions as people write them."""

from datetime import UTC, datetime, timedelta


def utc(text: str, *, end: bool = False) -> datetime:
    """A day or a time, of UTC if it names no zone; of a day its beginning, or its `end`. Raises ValueError."""
    found = datetime.fromisoformat(text)
    if end and "T" not in text and " " not in text:
        found += timedelta(days=1)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def version_or_time(text: str) -> int | datetime:
    """A version's number, or a time as above; raises ValueError."""
    return int(text) if text.isascii() and text.isdecimal() else utc(text)
