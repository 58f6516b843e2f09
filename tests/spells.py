"""A copy of the tiny project with two stateful tables, and records for them.

Notes of a member with no more than ten minutes between (spells), and notes with the replies that the member got within
ten minutes (a left join of two streams).
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from deltaworks.settings import Settings
from tests.chance import seeded
from tests.flows import START, Record
from tests.tiny_project import Project

GAP, AFTER, MOMENT = timedelta(minutes=10), timedelta(minutes=5), timedelta(milliseconds=1)
Row = dict[str, Any]
ROWS = {
    "bronze.letters": "null",
    "silver.notes": '{note_id: a, written_at: "2026-11-21T10:00:00Z", words: 1}',
    "silver.replies": '{reply_id: a, replied_at: "2026-11-21T10:00:00Z"}',
}
"""Every table has a case; these tables are judged by the tests below."""

LETTERS = '''"""Notes and replies, as they came."""

from deltaworks.words import Table, kafka, raw

TABLE = Table(app="tiny", reads=kafka("notes", "replies"), kept_as=raw(), owner="tests")
'''
REPLIES = '''"""Replies that members got. One row per reply."""

from deltaworks.words import Column, Table, append, json

TABLE = Table(
    app="tiny",
    reads=json("bronze.letters", topic="replies"),
    kept_as=append(),
    columns=(
        Column("reply_id", "string", null=False, doc="Given by the sender."),
        Column("replied_at", "timestamp", null=False, wire="millis", doc="When it was written, UTC."),
        Column("member_id", "bigint", doc="Who got it."),
    ),
    event_time="replied_at",
    owner="tests",
)
'''
SPELLS = '''"""Spells of writing: notes of a member, no more than ten minutes from each to the next."""

from deltaworks.words import Column, Table, POLICY, minutes, stateful

TABLE = Table(
    app="tiny",
    reads="silver.notes",
    kept_as=stateful(keys=("member_id", "begun"), part=("member_id",), gap=minutes(10), closes="over"),
    late=POLICY(after=minutes(5)),
    columns=(
        Column("member_id", "bigint", doc="Who wrote."),
        Column("begun", "timestamp", null=False, doc="Time of the first note, UTC."),
        Column("over", "timestamp", null=False, doc="Ten minutes after the last one, UTC."),
        Column("notes", "bigint", null=False, doc="Notes of the spell."),
        Column("words", "bigint", null=False, doc="Their words."),
        Column("complete", "boolean", null=False, doc="Whether all notes in time are counted."),
    ),
    event_time="begun",
    owner="tests",
)
'''
SPELLS_TRANSFORM = '''"""Notes to spells."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(notes: DataFrame) -> DataFrame:
    """Put notes together."""
    spells = notes.groupBy("member_id", F.session_window("written_at", "10 minutes").alias("w")).agg(
        F.count("*").alias("notes"), F.sum("words").alias("words")
    )
    return spells.select("member_id", F.col("w.start").alias("begun"), F.col("w.end").alias("over"), "notes", "words")
'''
ANSWERED = '''"""Notes, each with the replies that its writer got within ten minutes."""

from deltaworks.words import Column, Table, drop, minutes, stateful

TABLE = Table(
    app="tiny",
    reads=("silver.notes", "silver.replies"),
    kept_as=stateful(
        keys=("member_id", "written_at", "note_id"), part=("member_id",), reach=minutes(10), closes="waits_until"
    ),
    late=drop(after=minutes(5)),
    columns=(
        Column("member_id", "bigint", doc="Who wrote."),
        Column("written_at", "timestamp", null=False, doc="When it was written, UTC."),
        Column("note_id", "string", null=False, doc="The note."),
        Column("replies", "bigint", null=False, doc="Replies within ten minutes."),
        Column("first_reply", "timestamp", doc="The first of them, null while there is none."),
        Column("waits_until", "timestamp", null=False, doc="Until then a reply counts."),
        Column("complete", "boolean", null=False, doc="Whether all replies in time are counted."),
    ),
    event_time="written_at",
    owner="tests",
)
'''
ANSWERED_TRANSFORM = '''"""Notes with replies."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(notes: DataFrame, replies: DataFrame) -> DataFrame:
    """Join replies to the notes before them."""
    until = F.col("n.written_at") + F.expr("interval 10 minutes")
    near = F.col("r.replied_at").between(F.col("n.written_at"), until)
    joined = notes.alias("n").join(replies.alias("r"), (F.col("n.member_id") == F.col("r.member_id")) & near, "left")
    return joined.groupBy("n.member_id", "n.written_at", "n.note_id", until.alias("waits_until")).agg(
        F.count("r.reply_id").alias("replies"), F.min("r.replied_at").alias("first_reply")
    )
'''


def project(folder: Path, policy: str) -> Settings:
    """Give the tiny project with the two tables instead of its own gold ones, and an empty lake."""
    copy = Project(folder / "project")
    for path in ("tables/gold", "expectations/gold", "tables/silver/members", "expectations/silver/members.yml"):
        copy.delete(path)
    copy.edit("topics.toml", "[members]", "[replies]")
    copy.write("tables/bronze/letters/table.py", LETTERS)
    copy.write("tables/silver/replies/table.py", REPLIES)
    copy.write("tables/gold/spells/table.py", SPELLS.replace("POLICY", policy))
    copy.write("tables/gold/spells/transform.py", SPELLS_TRANSFORM)
    copy.write("tables/gold/answered/table.py", ANSWERED)
    copy.write("tables/gold/answered/transform.py", ANSWERED_TRANSFORM)
    inputs = {"silver/replies": ["bronze.letters"], "gold/spells": ["silver.notes"]}
    for name, reads in (inputs | {"gold/answered": ["silver.notes", "silver.replies"]}).items():
        given = ", ".join(f"{one}: [[{ROWS[one]}]]" for one in reads)
        copy.write(f"expectations/{name}.yml", "waived: judged below\n")
        copy.write(f"tables/{name}/cases/none.yml", f"doc: None.\ngiven: {{{given}}}\nthen: {{rows: []}}\n")
    return Settings.load(copy.folder, environment={}, data=folder / "data")


def record(topic: str, number: int, member: int | None, at: datetime) -> Record:
    """Give a note or a reply on the wire."""
    millis = round(at.timestamp() * 1000)
    if topic == "notes":
        value: Row = {"note_id": f"n{number}", "written_at": millis, "member_id": member, "words": number % 7}
    else:
        value = {"reply_id": f"r{number}", "replied_at": millis, "member_id": member}
    return Record(topic=topic, value=json.dumps(value).encode(), at=max(at, START))


def records(batches: int, each: int) -> Iterator[list[Record]]:
    """Give batches in which times are often exactly a gap or the bound apart, or far behind.

    Each begins with a note at the newest time; the next one is late, but in the first batch.
    """
    chance, number = seeded(), 0
    for batch in range(batches):
        now, made = START + batch * GAP / 2, []
        for place in range(each):
            number += 1
            back = chance.choice((0 * GAP, GAP, GAP + MOMENT, AFTER, AFTER + MOMENT, GAP * chance.random() * 6))
            member, topic = chance.choice((1, 2, 2, 3, None)), chance.choice(("notes", "notes", "replies"))
            if place < 2:
                topic, back = "notes", (0 * GAP, 7 * GAP)[place]
            made.append(record(topic, number, member, now - back))
        yield made
