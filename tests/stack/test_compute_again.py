"""A backfill whose owner is killed while tables are laid out, one that is not, a rewind: as an operator orders them."""

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from confluent_kafka import Producer
from deltalake import DeltaTable

from deltaworks import processes
from deltaworks.analyst import connect
from deltaworks.control import Command, Store
from deltaworks.engine.log import newest_version, read_log
from deltaworks.errors import LakeError, QueryError
from deltaworks.settings import ROOT, Settings
from tests.flows import START
from tests.running_stack import running_stack, wait_until
from tests.tiny_project import Project

SECONDS_MAX = 240
NOTES, DAYS = "silver.notes", "gold.notes_per_day"
RIGHT, WRONG = "min_value: 0}", "min_value: 0, max_value: 3}"
FIRST, LATER = 40, 12
DAY = f"{START:%Y-%m-%d}"
BACKFILL = ("backfill", NOTES, "--from", DAY, "--to", DAY)


def tiny(folder: Path) -> Project:
    """The tiny project with notes alone, and a rule that refuses the long ones."""
    project = Project(folder)
    project.edit("tables/bronze/letters/table.py", 'kafka("notes", "members")', 'kafka("notes")')
    for table in ("silver/members", "gold/members_per_city"):
        project.delete(f"tables/{table}")
        project.delete(f"expectations/{table}.yml")
    project.edit("expectations/silver/notes.yml", RIGHT, WRONG)
    return project


def words_of(number: int) -> int:
    """How long a note is: every other one is longer than the wrong rule allows."""
    return number % 8


def send(settings: Settings, first: int, count: int, *, day: int = 0) -> None:
    """Send numbered notes of one day, so many days after the first."""
    producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})
    at = int((START + timedelta(days=day)).timestamp() * 1000)
    for number in range(first, first + count):
        note = {"note_id": f"n{number}", "written_at": at + number, "member_id": 1, "words": words_of(number)}
        producer.produce("notes", json.dumps(note), key=str(number))
    assert producer.flush(30) == 0


def begun(settings: Settings, *words: str) -> "subprocess.Popen[str]":
    """Start the command line in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "deltaworks.cli", *words],
        env=settings.inherited(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def said(settings: Settings, *words: str) -> str:
    """What the command line says when all goes well."""
    with begun(settings, *words) as command:
        try:
            out, err = command.communicate(timeout=SECONDS_MAX)
        finally:
            processes.kill_session(command.pid)  # if it is there still
    assert command.returncode == 0, f"{words}: {out}\n{err[-3000:]}"
    return out


def takes_again(settings: Settings) -> bool:
    """Whether a backfill has taken rows again, in a lake of its own that is not whole yet."""
    for folder in (settings.data / "staged").glob("*/lake/silver/notes"):
        newest = newest_version(folder)
        try:
            logged = None if newest is None else read_log(folder, newest)
        except LakeError:  # its log is being laid out
            continue
        if logged is not None and logged.entry is not None and logged.entry.kind == "redo":
            return True
    return False


def there(settings: Settings) -> tuple[set[tuple[str, int]], list[dict[str, object]]]:
    """The notes, and what the table above makes of them."""
    with connect(settings.lake) as lake:
        notes = lake.sql(f"select note_id, words from {NOTES}").rows
        days = lake.sql(f"select day::varchar as day, notes, words from {DAYS}").dicts()
    assert len(notes) == len({*notes})
    return {(str(name), int(str(words))) for name, words in notes}, days


def known(settings: Settings) -> set[tuple[str, int]]:
    """The notes that are there; none before there is a table."""
    try:
        return there(settings)[0]
    except QueryError:
        return set()


def as_if_right(count: int) -> tuple[set[tuple[str, int]], list[dict[str, object]]]:
    """The same if the rule had always been right."""
    notes = {(f"n{number}", words_of(number)) for number in range(count)}
    return notes, [{"day": DAY, "notes": count, "words": sum(words for _, words in notes)}]


def version(settings: Settings) -> int:
    """The newest version of the notes."""
    return int(DeltaTable(settings.lake / "silver" / "notes").version())


def killed_owner(settings: Settings) -> Command:
    """Order a backfill and kill the owner that was started for it once rows are taken again; the order, as it is then.

    Nothing is left of it: its process ends with it, and removes what it has laid out.
    """
    with begun(settings, *BACKFILL) as command:
        wait_until(
            lambda: takes_again(settings) or command.poll() is not None,
            what="rows taken again", seconds_max=SECONDS_MAX,
        )  # fmt: skip
        (left,) = (settings.data / "staged").iterdir()
        with Store(settings.control_dsn()) as store:
            lease = store.lease("tiny")
            assert lease is not None
            family = processes.family(lease.pid)
            os.kill(lease.pid, signal.SIGKILL)
            _, told = command.communicate(timeout=SECONDS_MAX)
            wait_until(lambda: not any(map(processes.started, family)), what="its process has ended with it")
            (ordered,) = store.commands(kind="recompute")
    assert command.returncode == 3
    assert "its owner ended with code -9" in told
    assert not left.exists()
    return ordered


def test_backfill_whose_owner_was_killed_and_one_given_again_then_rewind(tmp_path: Path) -> None:
    """What was killed has changed nothing, and the next owner does it; afterwards all is as if the rule had been right.

    In the end the table above is computed again by another transform.
    """
    project = tiny(tmp_path / "project")
    with running_stack(parts=("control", "kafka"), project=project.folder) as settings:
        send(settings, 0, FIRST)
        said(settings, "run", "tiny", "--drain")
        project.edit("expectations/silver/notes.yml", WRONG, RIGHT)
        before = there(settings)

        killed = killed_owner(settings)
        after = there(settings)
        again = said(settings, *BACKFILL)
        published = version(settings)
        filled = there(settings)

        send(settings, FIRST, LATER)
        said(settings, "run", "tiny", "--drain")
        back = ("rewind", NOTES, "--to", str(published))
        planned = json.loads(said(settings, *back, "--dry-run", "--json"))
        said(settings, *back)
        rewound = there(settings)
        said(settings, "run", "tiny", "--drain")
        last = there(settings)
        orders = json.loads(said(settings, "commands", "list", "--json"))
        project.edit("tables/gold/notes_per_day/transform.py", 'F.sum("words")', '(2 * F.sum("words"))')
        computed = said(settings, "backfill", DAYS, "--from", DAY, "--to", DAY)
        (doubled,) = there(settings)[1]
        said(settings, "ledger")
        staged = list((settings.data / "staged").iterdir())

    assert killed.state == "running", killed.error
    assert before == after
    assert len(before[0]) == FIRST // 2
    assert f"rows written {FIRST // 2}" in again
    assert "together 2" in again  # the one that was left, and this one
    assert filled == rewound == as_if_right(FIRST)
    assert last == as_if_right(FIRST + LATER)
    assert "rows gone 1 " in computed
    assert "rows written 1 " in computed
    assert doubled["words"] == 2 * int(str(last[1][0]["words"]))
    first, above = planned
    assert (first["table"], first["to version"], first["rows to take again"]) == (NOTES, published, LATER)
    assert above["table"] == DAYS
    asked = [one["arguments"]["what"] for one in orders if one["kind"] == "recompute"]
    assert asked == ["rewind", "backfill", "backfill"]
    assert {one["state"] for one in orders} == {"done"}
    assert staged == []
