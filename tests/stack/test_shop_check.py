"""The demo's check against real sources: it accepts a lake that equals them, and no other."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaworks.settings import ROOT, Settings
from shop.check import BRONZE, CURRENT, TABLES, Check
from shop.evidence import open_database
from tests.running_stack import running_stack


@pytest.fixture(scope="module")
def still() -> Iterator[Settings]:
    """Give a stack of this file's own: in the shared one Debezium's heartbeat goes on, and Kafka never stands still."""
    with running_stack(parts=("source", "kafka")) as settings:
        yield settings


@pytest.fixture
def sources(still: Settings, tmp_path: Path) -> Settings:
    """Give settings with filled sources, an own data folder and no lake."""
    running = still
    arguments = ["--seconds", "3", "--rate", "500", "--order-rate", "20", "--duplicates", "0.05", "--malformed", "0.05"]
    command = [str(running.spark_python), "-m", "shop.simulate", *arguments]
    subprocess.run(command, cwd=ROOT, env=running.inherited(), check=True, timeout=120, stdout=subprocess.DEVNULL)
    shutil.copytree(running.secrets, tmp_path / "secrets")
    return running.changed(data=tmp_path)


@pytest.fixture
def lake(sources: Settings) -> Settings:
    """Give settings with a lake that equals the sources, written without the engine."""
    folder = sources.data / "evidence"
    folder.mkdir()
    with open_database(folder) as database:
        check = Check(database, sources)
        check.read_sources()
        check.close()
        for topic, name in BRONZE.items():
            _write(database, sources, name, f"select '{topic}' as topic, * from topic_{topic.replace('.', '_')}")
        for name, expected, _, _ in TABLES:
            now = ", true as is_current" if name in CURRENT else ""
            _write(database, sources, name, f"select *{now} from {expected}")
    return sources


def _write(database: duckdb.DuckDBPyConnection, settings: Settings, name: str, query: str) -> None:
    write_deltalake(settings.lake.joinpath(*name.split(".")), database.execute(query).to_arrow_table())


def table(settings: Settings, name: str) -> DeltaTable:
    """Open a table of the lake, to change it behind everybody's back."""
    return DeltaTable(settings.lake.joinpath(*name.split(".")))


def checked(settings: Settings) -> tuple[int, dict[str, Any]]:
    """Run the check; its exit code and its report by table."""
    command = [str(settings.spark_python), "-m", "shop.check", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, env=settings.inherited(), check=False, timeout=120, capture_output=True, text=True
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, {row["comparison"]: row for row in json.loads(done.stdout)}


def test_a_lake_that_equals_its_sources_passes(lake: Settings) -> None:
    """Nine comparisons, each with rows to compare except the change topic, which needs Debezium."""
    code, report = checked(lake)

    assert code == 0, report
    assert len(report) == 9
    assert {name for name, row in report.items() if row["found"] == 0} <= {"bronze.shop_changes"}


def test_a_lake_that_is_not_there_fails(sources: Settings) -> None:
    """No table is no excuse."""
    code, report = checked(sources)

    assert code == 1
    assert report["silver.orders"]["differences"] == ["no such table in the lake"]


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("bronze.web_events", lambda table: table.delete('"offset" = 7')),
        ("bronze.web_events", lambda table: table.update(updates={"value": "key"}, predicate='"offset" = 7')),
        ("silver.page_views", lambda table: table.delete("page = '/cart'")),
        ("silver.page_views__quarantine", lambda table: table.delete('"partition" = 0')),
        ("gold.page_views_per_minute", lambda table: table.update(updates={"views": "views + 1"})),
        ("gold.user_sessions", lambda table: table.update(updates={"views": "views + 1"})),
        ("silver.orders", lambda table: table.update(updates={"status": "'paid'"}, predicate="status = 'cancelled'")),
        ("silver.customers", lambda table: table.update(updates={"email": "name"}, predicate="customer_id = 1")),
        ("silver.customers", lambda table: table.update(updates={"is_current": "false"}, predicate="customer_id = 2")),
        ("gold.daily_orders", lambda table: table.update(updates={"revenue": "revenue - cast(0.01 as decimal(18,2))"})),
        (
            "silver.page_views",
            lambda table: write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="append"),
        ),
    ],
)
def test_each_sort_of_damage_is_found_in_its_table_alone(
    lake: Settings, name: str, spoil: Callable[[DeltaTable], object]
) -> None:
    """A lost, changed or doubled row fails the comparison of that table, and no other."""
    spoil(table(lake, name))

    code, report = checked(lake)

    assert code == 1
    assert [found for found, row in report.items() if row["verdict"] == "fail"] == [name]
    assert report[name]["differences"]
