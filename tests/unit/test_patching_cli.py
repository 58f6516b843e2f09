"""`quarantine patch` of a stopped app, by its real one-shot owner: judged, told, replayed, and never told to others."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks.control import Store
from deltaworks.settings import ROOT, Settings
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop
from tests.flows import Log
from tests.scratch_postgres import ScratchPostgres
from tests.shop_rows import broken, change, customer, view
from tests.unit.launching import scratch_project

SECRET = "ann@home.example"
TABLE = "silver.customers"
ROW = "shop.changes/0/1"


@pytest.fixture
def lake(postgres: ScratchPostgres, tmp_path: Path) -> Iterator[Settings]:
    """A stopped shop that has refused one of two customers, and a page view."""
    project = Shop(tmp_path / "shop")
    with scratch_project(postgres.dsn, postgres.port, tmp_path) as scratch, Store(scratch.control_dsn()) as store:
        settings = scratch.changed(project=project.folder, spark_python=Path(sys.executable))
        for app, records in (
            ("shop", [change("c", customer(1, "Ann"), lsn=1, table="customers"),
                      change("c", {**customer(2, "Bob"), "created_at": "now"}, lsn=2, table="customers")]),
            ("web", [view(1), broken(b"{")]),
        ):  # fmt: skip
            log = Log()
            log.send(records)
            ArrowOwner(settings, app).take(log.batch())
            # so that the owner to come is a later one
            store.release(store.acquire(app, owner="before", seconds=600, pid=1, process_started="1"))
        yield settings


def deltaworks(settings: Settings, *words: str, piped: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", *words], env=settings.inherited(), cwd=ROOT, input=piped,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_one_field_is_patched_shown_and_replayed(lake: Settings) -> None:
    """What came keeps its digits; nothing of the value is in the order, in a log, or left in a file."""
    patch = ("quarantine", "patch", TABLE, "--row", ROW, "--by", "ann", "--reason", "the till's clock")

    wrong = deltaworks(lake, *patch, "--set", f"email={SECRET}")
    assert wrong.returncode == 1, wrong.stderr
    assert f"would refuse the new value of {ROW} too: created_at: " in wrong.stderr
    done = deltaworks(lake, *patch, "--set", "created_at=2026-11-20T10:00:00Z", "--set", f"email={SECRET}")
    assert done.returncode == 0, done.stderr
    assert f'deltaworks quarantine replay {TABLE}"' in done.stdout
    (row,) = json.loads(deltaworks(lake, "quarantine", "show", TABLE, "--json").stdout)
    shown = deltaworks(lake, "quarantine", "show", TABLE).stdout
    replayed = deltaworks(lake, "quarantine", "replay", TABLE)
    gold = deltaworks(lake, "sql", f"select name, email from {TABLE} order by name", "--json").stdout

    assert (SECRET in row["value"], SECRET in row["patch"]["value"]) == (False, True)
    assert (row["patch"]["by"], row["patch"]["reason"]) == ("ann", "the till's clock")
    assert json.loads(row["patch"]["value"])["source"] == json.loads(row["value"])["source"]
    assert "by ann, " in shown
    assert "command 2: the till's clock" in shown
    assert replayed.returncode == 0, replayed.stderr
    assert [(one["name"], one["email"]) for one in json.loads(gold)] == [("Ann", None), ("Bob", SECRET)]
    with Store(lake.control_dsn()) as store:
        orders = [str(one) for one in store.commands()]
    logs = [file.read_text() for file in lake.logs.glob("*.log")]
    assert (len(orders), len(logs)) == (3, 1)
    assert SECRET not in "".join([*orders, *logs, wrong.stdout, wrong.stderr, done.stdout, done.stderr])
    assert list((lake.data / "staged").iterdir()) == []


def test_value_does_not_stay_where_no_order_was_given(lake: Settings) -> None:
    """The control store is away: nobody will ever look for the file."""
    away = lake.changed(port_control=1)
    patch = ("quarantine", "patch", TABLE, "--row", ROW, "--by", "ann", "--reason", "the till's clock")

    failed = deltaworks(away, *patch, "--set", f"email={SECRET}")

    assert failed.returncode == 3, failed.stderr
    assert SECRET not in failed.stderr
    assert list((lake.data / "staged").iterdir()) == []


def test_whole_value_comes_from_a_file_or_a_pipe_and_is_withdrawn(lake: Settings, tmp_path: Path) -> None:
    """Of what came nothing can be kept here: it is no JSON."""
    document = view(7).value
    assert document is not None
    (tmp_path / "view.json").write_bytes(document)
    patch = ("quarantine", "patch", "silver.page_views", "--row", "page_views/1/1", "--reason", "cut off")

    filed = deltaworks(lake, *patch, "--value", str(tmp_path / "view.json"))
    piped = deltaworks(lake, *patch, "--value", "-", piped=document.decode())
    kept = deltaworks(lake, *patch, "--set", "page=/")
    withdrawn = deltaworks(lake, "quarantine", "withdraw", *patch[2:])

    assert (filed.returncode, piped.returncode) == (0, 0), filed.stderr + piped.stderr
    assert (kept.returncode, "What came is not a JSON object" in kept.stderr) == (2, True)
    assert "withdrawn 1" in withdrawn.stdout
