"""A fault by the real command line: done to a small running stack, waited for, judged. The test is Airflow here."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from deltaworks.analyst import connect
from deltaworks.cli.recovery import not_well
from deltaworks.control import Store
from deltaworks.local.chaos.faults import fault
from deltaworks.settings import ROOT, Settings
from tests.flows import START
from tests.running_driver import SECONDS_MAX, at_work
from tests.running_stack import running_stack, wait_until
from tests.tiny_project import Project

NOTES = 20


def send(settings: Settings, first: int) -> None:
    """Send some notes, numbered from the first on."""
    producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})
    at = int(START.timestamp() * 1000)
    for number in range(first, first + NOTES):
        row = {"note_id": f"n{number}", "written_at": at + number, "member_id": 1, "words": 5}
        producer.produce("notes", json.dumps(row), key=str(number))
    assert producer.flush(30) == 0


@contextmanager
def breaking(settings: Settings, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """Give `deltaworks chaos run` under way; it is not left alone."""
    command = subprocess.Popen(
        [sys.executable, "-m", "deltaworks.cli", "chaos", "run", *words],
        env=settings.inherited(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield command
    finally:
        command.kill()
        command.communicate()


def test_restart_ends_when_another_driver_has_taken_what_came_meanwhile(tmp_path: Path) -> None:
    """It says its seed, what it does and what held; the app is wanted as before, and its driver is at work."""
    project = Project(tmp_path / "project")
    with (
        running_stack(parts=("control", "kafka"), project=project.folder) as settings,
        Store(settings.control_dsn()) as store,
        at_work(settings, "tiny") as driver,
    ):
        send(settings, 0)
        with breaking(settings, "restart", "--yes", "--seed", "7") as chaos:
            wait_until(
                lambda: chaos.poll() is not None
                or (driver.poll() is not None and store.app("tiny").desired == "running"),
                what="the driver is gone and wanted again", seconds_max=SECONDS_MAX,
            )  # fmt: skip
            assert chaos.poll() is None, chaos.communicate()  # it waits for another driver
            send(settings, NOTES)
            with at_work(settings, "tiny") as another:
                said, complaint = chaos.communicate(timeout=SECONDS_MAX)
                unwell, lease, app = not_well(settings, store, ["tiny"]), store.lease("tiny"), store.app("tiny")
                with connect(settings.lake) as lake:
                    notes = lake.sql("select count(*) from silver.notes").rows

    assert (chaos.returncode, complaint) == (0, ""), said
    assert driver.returncode == 0
    assert "seed 7, app tiny, topic " in said
    assert "the driver of tiny was stopped in good order" in said
    assert "restart: all runs again and every table is up to date" in said
    assert f"Held: {fault('restart').holds}" in said
    assert notes == [(2 * NOTES,)]
    assert unwell == ""
    assert lease is not None
    assert lease.pid == another.pid
    assert (app.desired, app.desired_by) == ("running", "chaos")
