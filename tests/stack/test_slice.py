"""The whole slice without Airflow: real Postgres, Debezium and Kafka on one side, SQL on gold on the other."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from deltalake import DeltaTable

from deltaworks import catalog
from deltaworks.analyst import Analyst, connect
from deltaworks.control import Store
from deltaworks.engine.balance import balance
from deltaworks.engine.broker import Broker
from deltaworks.engine.driver import EXIT_NOT_OWNER
from deltaworks.local import stack
from deltaworks.settings import ROOT, Settings
from shop.systems import lines
from tests.running_driver import at_work, started
from tests.running_stack import running_stack, wait_until

SENT = ("--views", "400", "--rate", "200", "--orders", "20", "--order-rate", "20", "--seed", "7", "--json")
FAULTS = ("--duplicates", "0.05", "--late", "0.05", "--malformed", "0.03", "--out-of-order", "0.05")
PARTS = ("source", "control", "kafka", "connect")
SECONDS_MAX = 240
WAITS = "the lease has ended, waiting for the control store"


@pytest.fixture(scope="module")
def sources() -> Iterator[Settings]:
    """Give the stack's settings; the shop's database and topics are there, no driver runs."""
    with running_stack(parts=PARTS, project=ROOT) as settings:
        yield settings


def command(settings: Settings, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    """Run a program of ours with these settings; gives what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=settings.inherited(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode in codes, f"{arguments}: exit code {done.returncode}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout


def cli(settings: Settings, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    """Run the command line."""
    return command(settings, "-m", "deltaworks.cli", *arguments, codes=codes)


@dataclass(frozen=True)
class Drained:
    """A stack whose drivers have taken all that the simulator sent."""

    settings: Settings
    sent: dict[str, int]


@pytest.fixture(scope="module")
def drained(sources: Settings) -> Drained:
    """Give the stack after a simulation with faults and a drain of both apps."""
    sent = json.loads(command(sources, "-m", "shop.simulate", *SENT, *FAULTS))
    for app in ("web", "shop"):
        cli(sources, "run", app, "--drain")
    return Drained(sources, sent)


def test_what_the_sources_sent_is_in_gold_exactly_once(drained: Drained) -> None:
    """The shop's own check, the ledger and SQL agree with what the simulator says that it sent."""
    sources, sent = drained.settings, drained.sent
    assert sent["duplicates"] > 0
    assert sent["malformed"] > 0

    check = json.loads(command(sources, "-m", "shop.check", "--wait", "20", "--json", codes=(0, 1)))
    books = json.loads(cli(sources, "ledger", "--json"))[0]
    orders = json.loads(cli(sources, "sql", "select sum(orders) as orders from gold.daily_orders", "--json"))

    # Debezium's heartbeat goes on after the drain, so the change topic itself is always a little ahead
    compared = {row["comparison"]: row["verdict"] for row in check if row["comparison"] != "bronze.shop_changes"}
    assert len(compared) >= 7
    assert set(compared.values()) == {"ok"}, check
    assert books["balanced"] is True
    assert not any(line["lost"] or line["missing"] or line["not_asked"] for line in books["topics"])
    # Debezium writes transactions, and each leaves a marker behind it
    assert sum(line["markers"] for line in books["topics"] if line["topic"] == "shop.changes") > 0
    assert int(orders[0]["orders"]) == sent["orders_placed"]


def test_each_system_has_its_line(drained: Drained) -> None:
    """What the demo prints last: each query finds its tables, in the lake or in the serving database, and numbers."""
    found = {line["system"]: str(line["found"]) for line in lines(drained.settings)}

    assert [name for name, text in found.items() if text.startswith("- (")] == []
    assert [name for name, text in found.items() if not re.search(r"\d", text)] == ["told to somebody"]  # nobody told
    assert found["daily report"].startswith(f"{drained.sent['orders_placed']} orders")


def test_own_writes_can_be_waited_for(drained: Drained) -> None:
    """What was sent is in gold by its offset; what nobody has sent is not, and the reason is said."""
    there = ("--table", "gold.page_views_per_minute", "--topic", "page_views", "--partition", "0")

    cli(drained.settings, "wait", *there, "--offset", "0")
    late = json.loads(
        cli(drained.settings, "wait", *there, "--offset", "1000000", "--timeout", "0.5", "--json", codes=(1,))
    )

    assert late[0]["arrived"] is False
    assert "bronze.web_events contains the offsets below" in late[0]["finding"]


def test_killed_driver_goes_on_where_the_ledger_says(drained: Drained) -> None:
    """A driver is killed with -9 amid the rows, its checkpoint is torn; the next one loses and doubles nothing."""
    sources = drained.settings
    with Store(sources.control_dsn()) as store:
        store.declare_apps(["shop", "web"])
        store.desire("web", "running", by="test", reason="a test")
    driver = started(sources, "web")
    lake = connect(sources.lake)
    before = _views(lake)
    command(sources, "-m", "shop.simulate", "--views", "600", "--rate", "100", "--order-rate", "0", "--json")
    wait_until(
        lambda: _views(lake) > before,
        what="rows of the first driver", seconds_max=SECONDS_MAX,
    )  # fmt: skip

    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    with Store(sources.control_dsn()) as store:
        store.desire("web", "stopped", by="test", reason="a test")
    checkpoint = [path for path in (sources.data / "checkpoints/web").rglob("*") if path.is_file()]
    assert "offsets" in {path.parent.name for path in checkpoint}
    for path in checkpoint:
        path.write_bytes(b"torn")
    cli(sources, "run", "web", "--drain")

    check = json.loads(command(sources, "-m", "shop.check", "--json", codes=(0, 1)))
    web = [row for row in check if "page_views" in str(row) or "web_events" in str(row)]
    assert len(web) >= 3
    assert all(row["verdict"] == "ok" for row in web), web


def test_second_driver_is_refused(drained: Drained) -> None:
    """While a driver owns the app, another one ends at once with exit code 75."""
    sources = drained.settings
    with Store(sources.control_dsn()) as store:
        store.desire("web", "running", by="test", reason="a test")
    driver = started(sources, "web")
    with Store(sources.control_dsn()) as store:
        wait_until(
            lambda: (lease := store.lease("web")) is not None and lease.pid == driver.pid and lease.live,
            what="the first driver's lease", seconds_max=SECONDS_MAX,
        )  # fmt: skip

    cli(sources, "run", "web", "--drain", codes=(75,))

    with Store(sources.control_dsn()) as store:
        store.desire("web", "stopped", by="test", reason="a test")
    assert driver.wait(timeout=SECONDS_MAX) == 0


def test_driver_waits_for_its_control_store(drained: Drained) -> None:
    """Without the store it commits until its lease ends, then waits; when the store is back it goes on."""
    sources = drained.settings.changed(lease_seconds=45)  # several turns of all tables
    log = sources.logs / "app-web.log"
    with at_work(sources, "web") as driver, _simulating(sources):
        before = _commits(sources)
        wait_until(lambda: _commits(sources) > before, what="the first commits", seconds_max=SECONDS_MAX)

        stack.hold(sources, "control")
        held = _commits(sources)
        wait_until(lambda: WAITS in log.read_text(), what="the end of the lease", seconds_max=SECONDS_MAX)
        ended = _commits(sources)
        time.sleep(3)
        waited, code = _commits(sources), driver.poll()
        stack.up(sources, parts=("control",))

        assert ended > held
        assert waited == ended
        assert code is None
        wait_until(lambda: _commits(sources) > waited, what="new commits", seconds_max=SECONDS_MAX)
        with Store(sources.control_dsn()) as store:
            store.desire("web", "stopped", by="test", reason="a test")
        assert driver.wait(timeout=SECONDS_MAX) == 0


def test_driver_that_was_succeeded_while_it_waited_ends(drained: Drained) -> None:
    """The store was away, the lease ran out, somebody took the app: it ends as not the owner and commits nothing."""
    sources = drained.settings
    with at_work(sources, "web") as driver:
        stack.hold(sources, "control")
        os.killpg(driver.pid, signal.SIGSTOP)  # it must not come first when the store is back
        time.sleep(sources.lease_seconds)
        stack.up(sources, parts=("control",))
        before = _commits(sources)
        with Store(sources.control_dsn()) as store:
            taken = store.acquire("web", owner="test", seconds=600, pid=1, process_started="0", host="elsewhere")
            os.killpg(driver.pid, signal.SIGCONT)
            code = driver.wait(timeout=SECONDS_MAX)
            store.release(taken)
            store.desire("web", "stopped", by="test", reason="a test")

        assert code == EXIT_NOT_OWNER
        assert _commits(sources) == before


def test_stopped_app_is_compacted_by_a_one_shot_owner(drained: Drained) -> None:
    """`compact` on a stopped app makes one file of many, as a commit with an entry; rows stay."""
    sources = drained.settings
    lake = connect(sources.lake)
    before = lake.sql("select count(*), sum(views) from gold.page_views_per_minute").rows

    cli(sources, "compact", "bronze.web_events")

    with Store(sources.control_dsn()) as store:
        result = store.commands(app="web")[0].result
    assert result is not None
    assert result["files_before"] > result["files_after"] == 1
    newest = json.loads(cli(sources, "ledger", "bronze.web_events", "-n", "1", "--json"))[0]["commits"][0]
    assert newest["kind"] == "compact"
    assert lake.sql("select count(*), sum(views) from gold.page_views_per_minute").rows == before
    assert json.loads(cli(sources, "ledger", "--json"))[0]["balanced"] is True


def test_copy_of_the_entries_is_made_anew_by_the_owners(drained: Drained) -> None:
    """`ledger --rebuild`: what was copied on the way is what the commits say."""
    asked = "select table_name, version, committed_at, entry from ops.ledger"
    lake = connect(drained.settings.lake)
    before = lake.sql(asked).rows

    cli(drained.settings, "ledger", "--rebuild")

    assert {app for app in ("web", "shop") if any(f'"app":"{app}"' in str(row[3]) for row in before)} == {"web", "shop"}
    assert {*before} <= {*lake.sql(asked).rows}


def test_restarted_stack_whose_published_topics_are_quiet_is_settled(drained: Drained) -> None:
    """Each ends in a transaction's marker, which nobody reads: what every table contains is all that there is."""
    sources = drained.settings
    for app in ("web", "shop"):  # what one has published, the other reads
        cli(sources, "run", app, "--drain")
    ends = _unread_of_published(sources)
    assert ends
    assert all(unread > 0 for unread in ends.values())

    stack.down(sources)
    stack.up(sources, parts=PARTS, seconds_max=SECONDS_MAX)

    assert _unread_of_published(sources) == ends
    with at_work(sources, "web"), at_work(sources, "shop"):
        assert balance(sources, seconds_max=SECONDS_MAX).findings == ()


def _unread_of_published(settings: Settings) -> dict[str, int]:
    """Of each topic that a table publishes, another one reads and that has records: offsets beyond the last read."""
    tables = catalog.load(settings.project).tables.values()
    topics = {one.table.publishes.topic for one in tables if one.table.publishes is not None}
    lines = json.loads(cli(settings, "ledger", "--json"))[0]["topics"]
    read = {(line["topic"], line["partition"]): line["read_up_to"] for line in lines if line["topic"] in topics}
    broker = Broker(bootstrap=settings.kafka, group="test")
    try:
        edges = broker.edges({topic for topic, _ in read})
    finally:
        broker.close()
    return {f"{topic}/{part}": edges[topic][str(part)].high - upto for (topic, part), upto in read.items() if upto}


def _views(lake: Analyst) -> int:
    return int(str(lake.sql("select count(*) from silver.page_views").rows[0][0]))


def _commits(settings: Settings) -> int:
    """How many commits there are in the tables that app web owns."""
    return sum(
        DeltaTable(settings.lake / table).version()
        for table in ("bronze/web_events", "silver/page_views", "gold/page_views_per_minute")
    )


@contextmanager
def _simulating(settings: Settings) -> Iterator[None]:
    """Send page views all the time."""
    words = ("--views", "100000", "--rate", "50", "--order-rate", "0", "--json")
    sending = subprocess.Popen(
        [sys.executable, "-m", "shop.simulate", *words], cwd=ROOT, env=settings.inherited(), stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        sending.kill()
        sending.wait()
