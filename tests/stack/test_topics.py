"""Topics and tables come and go between two starts of an app; nobody has to lend a hand."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from deltaworks.analyst import connect
from deltaworks.settings import ROOT, Settings
from tests.flows import START
from tests.running_stack import running_stack
from tests.tiny_project import TINY, Project

SECONDS_MAX = 240
ROWS_PER_BATCH_MAX = 100
OF_NOTES = ("silver/notes", "gold/notes_per_day")
OF_MEMBERS = ("silver/members", "gold/members_per_city")
READS = 'kafka("notes", "members")'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a copy of the tiny project that reads notes alone, with small batches."""
    project = Project(tmp_path / "project")
    project.edit("deltaworks.toml", "rows_per_batch_max = 1_000", f"rows_per_batch_max = {ROWS_PER_BATCH_MAX}")
    project.edit("tables/bronze/letters/table.py", READS, 'kafka("notes")')
    for table in OF_MEMBERS:
        remove(project, table)
    return project


@pytest.fixture
def broker(project: Project) -> Iterator[Settings]:
    """Give a broker with all topics, and a control store."""
    with running_stack(parts=("control", "kafka"), project=project.folder) as settings:
        yield settings


def remove(project: Project, table: str) -> None:
    """Take a table out of the project."""
    project.delete(f"tables/{table}")
    project.delete(f"expectations/{table}.yml")


def bring_back(project: Project, table: str) -> None:
    """Put a table back."""
    shutil.copytree(TINY / "tables" / table, project.folder / "tables" / table)
    shutil.copy(TINY / "expectations" / f"{table}.yml", project.folder / "expectations" / f"{table}.yml")


def send(settings: Settings, topic: str, first: int, count: int) -> None:
    """Send numbered notes or members."""
    producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})
    at = int(START.timestamp() * 1000)
    for number in range(first, first + count):
        row = {
            "notes": {"note_id": f"n{number}", "written_at": at + number, "member_id": 1, "words": 5},
            "members": {"member_id": number, "name": "Ada", "city": "Bath", "dues": "1.00", "joined": None},
        }[topic]
        producer.produce(topic, json.dumps(row), key=str(number))
    assert producer.flush(30) == 0


def drain(settings: Settings) -> None:
    """Let the app take all that is there."""
    done = subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", "run", "tiny", "--drain"],
        env=settings.inherited(), cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"


def ask(settings: Settings, query: str) -> list[tuple[object, ...]]:
    """An analyst's question."""
    with connect(settings.lake) as lake:
        return [tuple(row) for row in lake.sql(query).rows]


def test_topics_are_added_and_removed_and_a_backlog_starves_no_other(project: Project, broker: Settings) -> None:
    """A topic with a backlog joins and takes no more than its share; another goes, with its tables."""
    send(broker, "notes", 0, 20)
    drain(broker)
    before = ask(broker, "select max(_seq) from bronze.letters")[0][0]

    project.edit("tables/bronze/letters/table.py", 'kafka("notes")', READS)
    for table in OF_MEMBERS:
        bring_back(project, table)
    send(broker, "members", 0, 500)
    send(broker, "notes", 20, 30)
    drain(broker)
    shares = ask(
        broker,
        f"select topic, _seq, count(*) from bronze.letters where _seq > {before} group by all order by all",
    )
    both = ask(broker, "select (select count(*) from silver.notes), (select count(*) from silver.members)")

    project.edit("tables/bronze/letters/table.py", READS, 'kafka("members")')
    for table in OF_NOTES:
        remove(project, table)
    admin = AdminClient({"bootstrap.servers": broker.kafka})  # kept: it takes its answers along when it goes
    admin.delete_topics(["notes"])["notes"].result(timeout=30)
    send(broker, "members", 500, 10)
    drain(broker)

    members = [(seq, count) for topic, seq, count in shares if topic == "members"]
    assert len(members) >= 5
    assert max(int(str(count)) for _, count in members) <= ROWS_PER_BATCH_MAX
    assert [row[:2] for row in shares if row[0] == "notes"] == [("notes", members[0][0])]
    assert both == [(50, 500)]
    assert ask(broker, "select members from gold.members_per_city") == [(510,)]
    assert ask(broker, "select count(*) from silver.notes") == [(50,)]
