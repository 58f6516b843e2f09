"""The demo's check against real sources: it accepts a lake that equals them, and no other."""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, write_deltalake

from deltaworks import catalog
from deltaworks.settings import ROOT, Settings
from shop.check import BRONZE, TABLES, Check, copy_of
from shop.copies import COPIES, SERVED
from shop.events import TOPICS
from shop.evidence import open_database
from shop.faults import Faults
from shop.simulator import Run, perform, timeline
from shop.source import Source
from shop.topic import TOPIC, Topics
from tests.running_stack import running_stack
from tests.shop_copies import send_confirmations, send_large_purchases, send_products, serve

RUN = Run(
    seed=1,
    name="r",
    start=datetime(2025, 11, 21, 23, 50, tzinfo=UTC),  # over midnight
    rate=2,
    order_rate=0.1,
    event_rate=8,
    faults=Faults(duplicates=0.05, out_of_order=0.05, late=0.05, malformed=0.05),
    seconds_max=900,
)


@pytest.fixture(scope="module")
def still() -> Iterator[Settings]:
    """Give a stack of this file's own, with what a run of the simulator left, as fast as it could.

    In the shared one Debezium's heartbeat goes on, and Kafka never stands still.
    """
    stopping = threading.Event()
    with running_stack(parts=("source", "control", "kafka")) as settings:
        with (
            Topics(settings.kafka, topics=(TOPIC, *TOPICS), stopping=stopping) as topics,
            Source(settings.source_dsn("shop"), stopping=stopping) as source,
        ):
            steps = timeline(RUN, source.state())
            perform(
                steps,
                start=RUN.start,
                source=source,
                topics=topics,
                stopping=stopping,
                done=lambda _: None,
                paced=False,
            )
        yield settings


@pytest.fixture(scope="module")
def check(still: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Check]:
    """Give a check that has read the sources: every run of the command line reads them anew, which takes seconds."""
    with open_database(tmp_path_factory.mktemp("evidence")) as database:
        check = Check(database, still)
        check.read_sources()
        send_large_purchases(still, _rows(database, "silver.large_purchases"))
        check.read_sources()
        check.close()
        yield check


@pytest.fixture(scope="module")
def equal(still: Settings, check: Check, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a lake that equals the sources, written without the engine, and copies that equal it."""
    lake, expected = tmp_path_factory.mktemp("equal"), check._database
    for name, topic in BRONZE.values():
        _write(expected, lake, name, f"select '{topic}' as topic, * from {copy_of(topic)}")
    for name in TABLES:
        _write(expected, lake, name, f"select * from {name}")
    for name in SERVED:
        serve(still, name, _rows(expected, name))
    send_products(still, _rows(expected, "silver.products"))
    send_confirmations(still, [row["order_id"] for row in _rows(expected, "gold.order_confirmations")])
    return lake


def _write(database: duckdb.DuckDBPyConnection, lake: Path, name: str, query: str) -> None:
    write_deltalake(lake.joinpath(*name.split(".")), database.execute(query).to_arrow_table(), mode="append")


def _rows(database: duckdb.DuckDBPyConnection, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = database.execute(f"select * from {name}").to_arrow_table().to_pylist()
    return found


@pytest.fixture
def sources(still: Settings, tmp_path: Path) -> Settings:
    """Give settings with filled sources, an own data folder and no lake."""
    shutil.copytree(still.secrets, tmp_path / "secrets")
    return still.changed(data=tmp_path)


@pytest.fixture
def lake(sources: Settings, equal: Path) -> Settings:
    """Give settings with a lake that equals the sources, which may be spoiled."""
    shutil.copytree(equal, sources.lake)
    return sources


def table(settings: Settings, name: str) -> DeltaTable:
    """Open a table of the lake, to change it behind everybody's back."""
    return DeltaTable(settings.lake.joinpath(*name.split(".")))


def checked(settings: Settings, *, wait_seconds: int = 0) -> tuple[int, dict[str, Any]]:
    """Run the check; its exit code and its report by table."""
    command = [str(settings.spark_python), "-m", "shop.check", "--json", "--wait", str(wait_seconds)]
    done = subprocess.run(
        command, cwd=ROOT, env=settings.inherited(), check=False, timeout=120, capture_output=True, text=True
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, {row["comparison"]: row for row in json.loads(done.stdout)}


def test_every_table_is_compared_by_its_keys() -> None:
    """All of silver and gold, but what was too late to count: that depends on when it was read."""
    declared = {
        table.name: table.keys for table in catalog.load(ROOT).tables.values() if not table.name.startswith("bronze.")
    }

    compared = {name: keys for name, keys in TABLES.items() if not name.endswith("__quarantine")}

    left_out = {"gold.page_views_in_time", "gold.page_views_set_aside"}
    assert set(declared) - set(compared) == left_out
    assert compared == {name: keys or TABLES[name] for name, keys in declared.items() if name not in left_out}


def test_a_lake_that_equals_its_sources_passes(lake: Settings) -> None:
    """Each comparison has rows to compare but the change topic, which needs Debezium, and refused rows of our own."""
    code, report = checked(lake, wait_seconds=60)  # it does not wait, but looks whether it has to

    assert code == 0, report
    assert set(report) == {*BRONZE, *TABLES, *COPIES}
    assert len(report) == 71
    assert {name for name, row in report.items() if row["found"] == 0} == {
        "bronze.shop_changes",
        "silver.published_purchases__quarantine",
    }


def test_a_lake_that_is_not_there_fails(sources: Settings) -> None:
    """No table is no excuse."""
    code, report = checked(sources)

    assert code == 1
    assert report["silver.orders"]["differences"] == ["no such table in the lake"]


def lost(predicate: str) -> Callable[[DeltaTable], object]:
    """Rows are not there any more."""
    return lambda table: table.delete(predicate)


def changed(predicate: str | None = None, **updates: str) -> Callable[[DeltaTable], object]:
    """Columns of rows have other values, each told in SQL."""
    return lambda table: table.update(updates=updates, predicate=predicate)


def doubled(table: DeltaTable) -> None:
    """A row is there twice."""
    write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="append")


CENT = "cast(0.01 as decimal(18,2))"


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("bronze.web_events page_views", lost("topic = 'page_views' and \"offset\" = 7")),
        ("bronze.web_events page_views", changed("topic = 'page_views' and \"offset\" = 7", value="key")),
        ("bronze.web_events api_requests", lost("topic = 'api_requests'")),
        (
            "bronze.shop_events search_clicks",
            changed("topic = 'search_clicks'", timestamp="\"timestamp\" + interval '1 millisecond'"),
        ),
        ("silver.page_views", lost("page = '/cart'")),
        ("silver.page_views", doubled),
        ("silver.page_views", changed(arrived_at="event_time")),
        ("silver.page_views__quarantine", lost('"partition" = 0')),
        ("silver.searches", changed(term="'x'")),
        ("silver.api_requests", changed("status = 200", status="201")),
        ("silver.purchases", changed(amount="amount + cast(0.01 as decimal(12,2))")),
        ("silver.large_purchases", lost("amount > 250")),
        ("silver.large_purchases__quarantine", lost('"partition" = 0')),
        ("silver.cart_commands", changed("product_id = 1", product_id="null")),
        ("silver.product_clicks__quarantine", lost('"partition" = 1')),
        ("silver.orders", changed("status = 'cancelled'", status="'paid'")),
        ("silver.customers", changed("customer_id = 1", email="name")),
        ("silver.customers", changed("customer_id = 2", is_current="false")),
        ("silver.customers", changed("age is not null", age="age + 1")),
        ("silver.order_lines", lost("line_no = 2")),
        ("silver.stock", changed(quantity="quantity + 1")),
        ("silver.cart_events", changed("refused is not null", refused="null")),
        ("silver.cart_commands_refused", doubled),
        ("gold.page_views_per_minute", changed(views="views + 1")),
        ("gold.page_views_by_arrival", changed(delay_seconds="delay_seconds + 1")),
        ("gold.user_sessions", changed(views="views + 1")),
        ("gold.request_bursts", changed("errors > 0", errors="0")),
        ("gold.search_click_through", changed("clicks > 0", clicked_at="searched_at")),
        ("gold.search_terms", changed(rate="rate + 0.001")),
        ("gold.click_to_purchase", lost("bought_at is not null")),
        ("gold.carts", changed("pieces > 0", lines="'{}'")),
        ("gold.cart_interest", changed(removed="removed + 1")),
        ("gold.daily_orders", changed(revenue=f"revenue - {CENT}")),
        ("gold.order_items", changed(value=f"value + {CENT}")),
        ("gold.enriched_clicks", doubled),
        ("gold.clicks_as_known", changed(url="click_id")),
        ("gold.customer_profiles", changed("favourite_category is not null", favourite_category="name")),
        ("gold.product_search", changed("sold > 0", sold="sold - 1")),
        ("gold.order_confirmations", lost("order_id = 3")),
    ],
)
def test_each_sort_of_damage_is_found_in_its_table_alone(
    check: Check, lake: Settings, name: str, spoil: Callable[[DeltaTable], object]
) -> None:
    """A lost, changed or doubled row fails the comparison of that table (in bronze: of that topic), and no other."""
    spoil(table(lake, name.split(maxsplit=1)[0]))

    failed = [comparison for comparison in check.compare_with(lake.lake) if not comparison.ok]

    assert [comparison.name for comparison in failed] == [name]
    assert failed[0].differences


def test_what_kafka_forgot_is_known_from_bronze(lake: Settings) -> None:
    """Retention takes events out of topics: bronze is believed about them, and silver still compared with it."""
    begins = {"page_views": 10, "search_clicks": 5, "cart_commands": 20}
    _, before = checked(lake)
    admin = AdminClient({"bootstrap.servers": lake.kafka})
    forgotten = admin.delete_records([TopicPartition(topic, 0, offset) for topic, offset in begins.items()])
    assert {place.topic: future.result(30).low_watermark for place, future in forgotten.items()} == begins

    whole, after = checked(lake)
    table(lake, "silver.product_clicks").delete()
    code, report = checked(lake)

    assert whole == 0, after
    assert after["silver.product_clicks"] == before["silver.product_clicks"]
    in_bronze = "bronze.shop_events search_clicks"
    assert after[in_bronze]["expected"] == before[in_bronze]["expected"] - begins["search_clicks"]
    assert code == 1
    assert [name for name, row in report.items() if row["verdict"] == "fail"] == ["silver.product_clicks"]
