"""The changes of a table, as its copies read them."""

import json
from pathlib import Path

from deltaworks import catalog
from deltaworks.engine.outlets.feed import Feed
from deltaworks.settings import Settings
from tests.arrow_flows import ArrowOwner
from tests.flows import START, Log, Record
from tests.tiny_project import Project

NAME = "silver.notes"
WORDS = '        Column("words", "int", null=False, doc="Its length in words."),\n'
MOOD = '        Column("mood", "string", doc="How it was meant."),\n'


def note(number: int, **more: object) -> Record:
    """A note on the wire."""
    written = int(START.timestamp() * 1000) + number
    value = {"note_id": f"n{number}", "written_at": written, "member_id": 1, "words": number, **more}
    return Record(topic="notes", key=b"1", value=json.dumps(value).encode())


def test_rows_of_before_a_column_was_declared_have_none_of_it(tmp_path: Path) -> None:
    """Their files lack it: it is null in them, and the rows that came since have it, all in one reading."""
    project = Project(tmp_path / "project")
    settings = Settings.load(project.folder, environment={}, data=tmp_path / "data")
    owner, log = ArrowOwner(settings, "tiny"), Log()
    log.send([note(1), note(2)])
    owner.take(log.batch())

    project.edit("tables/silver/notes/table.py", WORDS, WORDS + MOOD)
    owner.catalog = catalog.load(settings.project)
    owner.start()
    log.send([note(3, mood="glad"), note(4)])
    owner.take(log.batch())

    feed = Feed(owner.catalog[NAME], settings.lake / "silver/notes", bytes_max=2**26)
    newest = feed.newest()
    assert newest is not None
    told = feed.inserts(0, newest)
    assert told is not None
    moods = [(change.row[0], change.row[feed.columns.index("mood")]) for change in told if change.row is not None]
    assert moods == [("n1", None), ("n2", None), ("n3", "glad"), ("n4", None)]
    assert len({change.key for change in told}) == len(told)
