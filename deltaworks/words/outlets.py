"""Where a table's rows go beside the lake: into a database that answers look-ups, into a topic that others read."""

from deltaworks.words._word import word

LANGUAGES = (
    "simple", "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "estonian", "finnish", "french",
    "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian",
    "portuguese", "romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
)  # fmt: skip
"""Postgres's text search configurations."""


@word
class Postgres:
    """A copy of the table in the serving database, under the same name, a moment behind."""

    search: tuple[str, ...]
    language: str


@word
class Changelog:
    """A topic with the newest row of each key, and a tombstone for a key that is gone; meant to be compacted."""

    topic: str


@word
class Events:
    """A topic with each row once, when it is there for the first time; what becomes of it later is not told."""

    topic: str
    key: tuple[str, ...]


def postgres(*, search: tuple[str, ...] = (), language: str = "simple") -> Postgres:
    """Keep a copy in the serving database, one row per key of the table.

    `search`: text columns of a ranked full-text index, the most important first. `language`: one of Postgres's text
    search configurations; `simple` knows no endings.
    """
    return Postgres(search=search, language=language)


def changelog(topic: str) -> Changelog:
    """Publish every change: the key of a message is the table's, its value the row, or nothing once the row is gone."""
    return Changelog(topic=topic)


def events(topic: str, *, key: tuple[str, ...]) -> Events:
    """Publish each new row as an event; `key` names the columns that keep their order in the topic."""
    return Events(topic=topic, key=key)
