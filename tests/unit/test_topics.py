"""Topics of one bronze table: each brings its own time."""

import json
from datetime import datetime, timedelta
from pathlib import Path

from deltaworks.settings import Settings
from tests.arrow_flow import ArrowOwner
from tests.flows import START, Record
from tests.tiny_project import Project


def drafts(folder: Path) -> Settings:
    """Give the tiny project with a second topic of notes and its table."""
    project = Project(folder / "project")
    project.edit("tables/bronze/letters/table.py", '"notes", "members"', '"notes", "members", "drafts"')
    project.edit("topics.toml", "[members]", '[drafts]\nkey = "note_id"\n\n[members]')
    notes = (project.folder / "tables/silver/notes/table.py").read_text()
    project.write("tables/silver/drafts/table.py", notes.replace('topic="notes"', 'topic="drafts"'))
    project.write("expectations/silver/drafts.yml", "waived: a test\n")
    return Settings.load(project.folder, environment={}, data=folder / "data")


def written(topic: str, name: str, at: datetime) -> Record:
    """A note of this time."""
    value = {"note_id": name, "written_at": round(at.timestamp() * 1000), "words": 1}
    return Record(topic=topic, value=json.dumps(value).encode())


def test_topic_that_joins_with_its_history_is_not_late(tmp_path: Path) -> None:
    """It begins a month before where the other topic is: how late a row is follows from the rows of its own table."""
    owner = ArrowOwner(drafts(tmp_path), "tiny")
    month, hour = timedelta(days=30), timedelta(hours=1)

    for records in (
        [written("notes", "a", START)],
        [written("drafts", "b", START - month)],
        [written("notes", "c", START - hour), written("drafts", "d", START - month)],
    ):
        owner.log.send(records)
        owner.bronze()
        owner.silver()

    late = {
        row["note_id"]: timedelta(microseconds=row["_late_by"])
        for name in ("silver.notes", "silver.drafts")
        for row in owner.flow.inputs[name].table.read(["note_id", "_late_by"]).to_pylist()
    }
    assert late == {"a": timedelta(0), "b": timedelta(0), "c": hour, "d": timedelta(0)}
