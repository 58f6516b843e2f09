"""The chaos kit where it needs no stack: what it refuses, what it may do to a project's files, what the report says."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from deltaworks.cli.chaos import _scene
from deltaworks.cli.recovery import _expected, with_taken
from deltaworks.engine.checker import Finding
from deltaworks.errors import StackError
from deltaworks.local.chaos import broker, disk
from deltaworks.local.chaos.fault import Scene
from deltaworks.local.chaos.faults import FAULTS, fault
from deltaworks.settings import ROOT, Settings
from tests.chaos.faults import Drilling, seeds_of
from tests.chaos.report import Done, Drill, page, read, short

NO_STORE = NO_TRAFFIC = cast("Any", None)


def scene(settings: Settings) -> Scene:
    """A scene without a stack."""
    return Scene(
        settings=settings, store=NO_STORE, chance=Random(7), app="web", topic="page_views", read_up_to=lambda _: {},
        say=lambda _: None,
    )  # fmt: skip


def cli(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line over a data folder where no stack ever ran."""
    settings = Settings.load(ROOT, environment={}, data=data)
    return subprocess.run(
        [sys.executable, "-m", "deltaworks.cli", "chaos", *arguments],
        env=settings.inherited(), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_list_names_every_fault(tmp_path: Path) -> None:
    """Once each, with what must hold."""
    done = cli(tmp_path, "list", "--json")

    assert [row["fault"] for row in json.loads(done.stdout)] == [one.name for one in FAULTS]


def test_what_destroys_is_refused_unless_it_is_wanted(tmp_path: Path) -> None:
    """Whatever else is said."""
    done = cli(tmp_path, "run", "retention-passed", "--yes")

    assert done.returncode == 3
    assert "add --destroy" in done.stderr


def test_nothing_is_broken_where_no_local_stack_runs(tmp_path: Path) -> None:
    """It says what to start."""
    done = cli(tmp_path, "run", "broker-killed", "--yes")

    assert done.returncode == 3
    assert "does not run" in done.stderr


def test_unknown_fault_names_the_nearest() -> None:
    """As every unknown name does."""
    with pytest.raises(StackError, match="The nearest is broker-down"):
        fault("broker-dwn")


def test_large_disk_is_not_filled(tmp_path: Path) -> None:
    """Nor one that the lake shares."""
    settings = Settings.load(ROOT, environment={}, data=tmp_path)
    settings.lake.mkdir()

    assert "is on no disk of its own" in disk.small_disk(scene(settings))


def test_added_partition_is_declared_and_nothing_else_changes(tmp_path: Path) -> None:
    """Only the number of that topic, as often as it is done."""
    text = (ROOT / "topics.toml").read_text()
    assert text.index("[page_views]\npartitions = 2") < text.index("partitions = 2") + 20, "it is the first of two"
    (tmp_path / "topics.toml").write_text(text)
    settings = Settings.load(ROOT, environment={}).changed(project=tmp_path)

    for count in (3, 4):
        broker._declare(scene(settings), count)

    assert (tmp_path / "topics.toml").read_text() == text.replace("partitions = 2", "partitions = 4", 1)


def test_nobody_is_ahead_of_time_in_a_topic_without_event_times() -> None:
    """Changes of a database have none that a table takes."""
    settings = Settings.load(ROOT, environment={})

    changes = dataclasses.replace(scene(settings), topic="shop.changes")

    assert broker.no_event_time(changes)
    assert broker.changes_of_a_database(changes)
    assert not broker.changes_of_a_database(scene(settings))
    assert not broker.no_event_time(scene(settings))
    assert broker._ahead(broker._with_event_time(scene(settings)))["event_time"] == "2099-01-01T00:00:00Z"  # type: ignore[arg-type]  # there is one


def test_seed_draws_the_same_by_hand_as_in_the_drill(tmp_path: Path) -> None:
    """Whether the app and the topic are drawn, given, or the drill's own; another seed draws something else."""
    settings = Settings.load(ROOT, environment={}, data=tmp_path)
    drawn = list[float]()

    def missing(at: Scene) -> str:
        drawn.append(at.seconds(0, 1e6))
        return "only drawn"

    one = dataclasses.replace(fault("broker-down"), missing=missing)
    drilling = Drilling(settings, NO_STORE, NO_TRAFFIC, lambda _: None)
    for seed in (7, 8):
        assert drilling.once(one, seed) == Done(what="broker-down", seed=seed, skipped="only drawn")
    by_hand = [
        _scene(settings, NO_STORE, one, seed=7, running=["shop", "web"], app=app, topic=topic)
        for app, topic in ((None, None), ("web", None), ("web", "page_views"))
    ]

    assert [at.seconds(0, 1e6) for at in by_hand] == [drawn[0]] * 3
    assert drawn[1] != drawn[0]


def test_seed_of_a_run_draws_the_seeds_of_its_sequences() -> None:
    """So one number repeats a whole run."""
    assert seeds_of(7, 20) == seeds_of(7, 30)[:20]
    assert len({*seeds_of(7, 20), *seeds_of(8, 20)}) == 40


def test_seed_is_in_the_report_of_its_run(tmp_path: Path) -> None:
    """Of the run, and of each row."""
    run, row = Drill(seed=7), Done(what="driver-killed, broker-down", seed=9, drawn=True)

    run.add(row, tmp_path)

    (path,) = tmp_path.glob("chaos-*.json")
    assert json.loads(path.read_text())["seed"] == 7
    assert read(tmp_path) == [row]


def test_run_that_would_do_nothing_is_refused() -> None:
    """A seed alone names no fault: a stack for nothing would look like a fault that held."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.faults", "--no-every", "--seed", "7"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "nothing to do" in done.stderr


def test_what_is_taken_away_adds_up_until_a_topic_begins_anew() -> None:
    """Nothing of a topic made anew is shown as gone."""
    assert with_taken({"a": 3}, {"a": 2, "b": 1}) == {"a": 5, "b": 1}
    assert with_taken({"a": 3}, {"a": 0}) == {"a": 0}


def test_only_what_was_taken_away_is_expected_to_be_gone() -> None:
    """Of this topic, and nothing else that the checker finds there."""
    gone = Finding("I1", "bronze.a a/0", "5 offsets were gone before they were read", "Raise retention_hours")

    assert _expected(gone, {"a": 5})
    assert not _expected(gone, {"b": 5})
    assert not _expected(gone, {"a": 0})
    assert not _expected(gone._replace(finding="4 rows from 3 offsets"), {"a": 5})


def test_report_shows_the_last_time_of_each_fault_and_every_seed() -> None:
    """What was not done is named too."""
    done = [
        Done(what="restart", seed=1, seconds=2.0, times=1.0, findings=("a row is missing",)),
        Done(what="restart", seed=2, seconds=2.0, times=1.0),
        Done(what="driver-stopped", seed=2, seconds=0.08, times=0.04),
        Done(what="broker-down", seed=2, seconds=1.0, times=0.5),
        Done(what="disk-full", seed=2, skipped="no small disk"),
        Done(what="driver-killed, broker-down", seed=9, seconds=8.0, times=4.0, drawn=True, findings=("late",)),
    ]

    text, table = page(done), short(done)

    assert "3 of 23 faults done, 1 seeds drawn, 1 violations." in text
    assert "| 9 | driver-killed, broker-down | 1 findings | 4.00 x |" in text
    assert "| held | 1.00 x | 2 |" in text
    assert "| held | 0.04 x | 2 |" in text
    assert "| held | `restart`, `driver-stopped`, `broker-down` |" in table
    assert "| skipped | `disk-full` |" in table
    assert "`broker-killed`" in table


def test_readme_says_how_long_recoveries_took_and_where_the_seeds_are() -> None:
    """As multiples of a plain restart's, which is none of them; nothing is said of what was not measured."""
    done = [
        Done(what="restart", seed=1, seconds=2.0, times=1.0),
        Done(what="driver-stopped", seed=1, seconds=0.08, times=0.04),
        Done(what="broker-down", seed=1, seconds=1.0, times=0.5),
    ]
    drawn = [dataclasses.replace(done[2], drawn=True, times=times) for times in (4.0, 2.0)]

    both, none = short([*done, *drawn]), short(done[:1])

    assert "a plain restart: 0.04 to 0.50 x after one fault, 2.00 to 4.00 x after those of one seed. Every" in both
    assert "[docs/chaos.md](docs/chaos.md)" in both
    assert "Recovery" not in none
    assert "[docs/chaos.md](docs/chaos.md)" in none
