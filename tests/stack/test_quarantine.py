"""Three thousand rows that a wrong rule refused go where they would have gone, once it is mended, through deaths.

Then its tables are built anew.
"""

import json
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer

from deltaworks.analyst import connect
from deltaworks.control import Store
from deltaworks.settings import ROOT, Settings
from tests.broken_rules import Shop
from tests.flows import START
from tests.running_stack import running_stack

SECONDS_MAX = 240
GOOD, REFUSED = 4_000, 3_000


def send(settings: Settings) -> Counter[tuple[str, datetime]]:
    """Send page views of an hour, in order; gives the views per page and minute."""
    producer = Producer({"bootstrap.servers": settings.kafka, "enable.idempotence": True})
    views: Counter[tuple[str, datetime]] = Counter()
    for number in range(GOOD + REFUSED):
        at = START + timedelta(milliseconds=500 * number)
        page = f"/{number % 5}" if number % 7 < 4 else f"shop/{number % 3}"  # four good ones of seven
        views[page, at.replace(second=0, microsecond=0)] += 1
        row = {"event_id": f"e{number}", "event_time": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}", "user_id": number % 40,
               "session_id": "s", "page": page, "referrer": None}  # fmt: skip
        producer.produce("page_views", json.dumps(row), key=str(number % 40))
    assert producer.flush(60) == 0
    return views


def deltaworks(settings: Settings, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", *words],
        env={**settings.inherited(), **more}, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX,
        check=False,
    )  # fmt: skip


def test_quarantine_is_emptied_though_its_owner_is_killed_twice(tmp_path: Path) -> None:
    """Once before the table has them, once before quarantine lets them go; gold is as if the rule had been right."""
    project = Shop(tmp_path / "project")
    with running_stack(parts=("control", "kafka"), project=project.folder) as settings:
        views = send(settings)
        drained = deltaworks(settings, "run", "web", "--drain")
        assert drained.returncode == 0, drained.stderr[-3000:]
        listed = json.loads(deltaworks(settings, "quarantine", "list", "silver.page_views", "--json").stdout)
        project.edit("silver/page_views.yml", "'^/'", "'^(/|shop/)'")
        with Store(settings.control_dsn()) as store:
            order = store.send(
                app="web", table="silver.page_views", kind="replay_refused_rows", arguments={}, by="test",
                reason="the rule was wrong",
            )  # fmt: skip

            deaths = [
                deltaworks(settings, "run", "web", "--drain", DELTAWORKS_FAIL_AT=point)
                for point in (
                    "silver.page_views.replay.before-commit",
                    "silver.page_views__quarantine.release.before-commit",
                )
            ]
            between = store.command(order).state
            last = deltaworks(settings, "run", "web", "--drain")
            done = store.command(order)
        with connect(settings.lake) as lake:
            gold = lake.sql("select page, minute, views from gold.page_views_per_minute").dicts()
            (visited,) = lake.sql("select sum(views) as views from gold.user_sessions").dicts()
        back = deltaworks(
            settings, "replay", "silver.page_views", "--from-offset", "page_views/0/0", "--dry-run", "--json"
        )
        anew = deltaworks(settings, "rebuild", "silver.page_views")
        caught_up = deltaworks(settings, "run", "web", "--drain")
        with connect(settings.lake) as lake:
            gold_again = lake.sql("select page, minute, views from gold.page_views_per_minute").dicts()
            (visited_again,) = lake.sql("select sum(views) as views from gold.user_sessions").dicts()
        staged = list((settings.data / "staged").iterdir())
        ledger = deltaworks(settings, "ledger")
        proof = deltaworks(settings, "prove", "silver.page_views")
        left = deltaworks(settings, "quarantine", "list", "silver.page_views")

    assert [one["rows"] for one in listed] == [REFUSED]
    assert [death.returncode for death in deaths] == [-9, -9], [death.stderr[-3000:] for death in deaths]
    assert between == "running"
    assert last.returncode == 0, last.stderr[-3000:]
    assert done.result == {
        "moved": REFUSED, "taken": REFUSED, "superseded": 0, "duplicate": 0, "not_mine": 0, "filtered": 0,
        "still_refused": 0,
    }  # fmt: skip
    assert {(row["page"], row["minute"]): row["views"] for row in gold} == views
    assert visited["views"] == GOOD + REFUSED
    assert [(one["table"], one["orders undone"]) for one in json.loads(back.stdout)] == [
        ("silver.page_views", str(order)), ("gold.page_views_per_minute", None), ("gold.user_sessions", None)
    ]  # fmt: skip
    # the same once more from bronze
    assert (anew.returncode, caught_up.returncode) == (0, 0), anew.stderr[-3000:] + caught_up.stderr[-3000:]
    assert {(row["page"], row["minute"]): row["views"] for row in gold_again} == views
    assert visited_again["views"] == GOOD + REFUSED
    assert not staged
    assert ledger.returncode == 0, ledger.stdout
    assert "silver.page_views: proved. 7,000 keys" in proof.stdout, proof.stdout + proof.stderr[-3000:]
    assert "no row is set aside" in left.stdout
