"""The command behind each number of the ledger lists as many rows as the number says."""

import json
import re
import shlex
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from deltaworks.analyst import connect
from deltaworks.engine.behind import Behind, behind
from deltaworks.engine.entry import Counts, Entry
from deltaworks.engine.ledger import Ledger
from deltaworks.settings import Settings
from deltaworks.words import drop, minutes, side_output
from deltaworks.words.lateness import Late, SideOutput
from shop.part import FIRST, part_of_shop
from tests.arrow_flow import ArrowOwner
from tests.flows import START, Record
from tests.shop_rows import broken, change, customer, order, tombstone, view

WIDTH = 80


def owner(folder: Path, app: str, *batches: list[Record]) -> ArrowOwner:
    """Have an app take these ingest batches."""
    owner = ArrowOwner(Settings.load(part_of_shop(folder / "project", *FIRST), environment={}, data=folder), app)
    for batch in batches:
        owner.log.send(batch)
        owner.bronze()
        owner.silver()
    owner.flow.settle()
    return owner


def numbers(owner: ArrowOwner, table: str) -> dict[str, Behind]:
    """What stands behind a table's numbers."""
    return {one.number: one for one in Ledger(owner.catalog, owner.settings.lake).behind(table)}


def listed(owner: ArrowOwner, one: Behind) -> int:
    """Carry out a command: how many rows it lists, or what its commits add up to."""
    program, command, sql = shlex.split(one.command)
    assert (program, command) == ("deltaworks", "sql")
    with connect(owner.settings.lake) as lake:
        answer = lake.sql(sql)
    if one.lists == "rows":
        return len(answer.rows)
    return sum(int(str(row[one.number])) for row in answer.dicts())


def test_events_are_listed_by_where_they_went(tmp_path: Path) -> None:
    """Copies, in the same batch and later ones, are found although nothing of them is kept."""
    web = owner(
        tmp_path, "web",
        [view(1), view(1), broken(b"{"), broken(b"\xff")], [view(1), view(2)],
    )  # fmt: skip

    found = numbers(web, "silver.page_views")

    assert {name: one.count for name, one in found.items()} == {
        "rows": 2, "read": 6, "taken": 2, "refused": 2, "duplicate": 2
    }  # fmt: skip
    assert found["refused"].command == "deltaworks quarantine show silver.page_views"
    for name in ("rows", "read", "taken", "duplicate"):
        assert listed(web, found[name]) == found[name].count, name


def test_changes_are_listed_by_where_they_went(tmp_path: Path) -> None:
    """Tombstones and other tables' changes are told from this one's, whatever bytes there are; the rest by commits."""
    shop = owner(
        tmp_path, "shop",
        [change("c", order(1), lsn=1), change("u", order(1), lsn=2), tombstone(1),
         change("c", customer(1, "A"), lsn=3, table="customers")],
        [Record(topic="shop.changes", value=b"\xff\xfe"), Record(topic="shop.changes", value=b"[1]"),
         change("u", order(1), lsn=4)],
    )  # fmt: skip

    found = numbers(shop, "silver.orders")

    counts = {"rows": 1, "read": 7, "taken": 2, "superseded": 1, "refused": 2, "not_mine": 2}
    assert {name: one.count for name, one in found.items()} == counts
    for name in ("rows", "read", "taken", "superseded", "not_mine"):
        assert listed(shop, found[name]) == found[name].count, name


def test_changes_under_partitions_names_are_listed(tmp_path: Path) -> None:
    """As the table's own, and others are not."""
    project = part_of_shop(tmp_path / "project", *FIRST)
    declared = project / "tables/silver/orders/table.py"
    table = 'table="public.orders"'
    assert table in declared.read_text()
    declared.write_text(declared.read_text().replace(table, f'{table}, partitions="public.orders_2*"'))
    shop = ArrowOwner(Settings.load(project, environment={}, data=tmp_path), "shop")
    for number, name in enumerate(("orders", "orders_2026", "orders_old", "orders_2027"), start=1):
        record = change("c", order(number), lsn=number)
        value = json.loads(record.value or b"")
        value["source"]["table"] = name
        shop.log.send([replace(record, value=json.dumps(value).encode())])
    shop.bronze()
    shop.silver()
    shop.flow.settle()

    found = numbers(shop, "silver.orders")

    assert {name: one.count for name, one in found.items()} == {"rows": 3, "read": 4, "taken": 3, "not_mine": 1}
    assert listed(shop, found["not_mine"]) == 1


def test_bronze_rows_and_gaps_are_listed(tmp_path: Path) -> None:
    """Every row that was read is there; offsets without a row are the broker's to explain."""
    web = owner(tmp_path, "web", [view(1), view(2)])
    web.log.ends["page_views", 1] = 5
    web.log.send([view(3)])
    web.bronze()

    found = numbers(web, "bronze.web_events")

    assert [listed(web, found[name]) for name in ("rows", "read", "taken")] == [3, 3, 3]
    assert (found["gaps"].count, found["gaps"].command) == (3, "deltaworks ledger --gaps page_views")


@pytest.mark.parametrize("policy", [drop(after=minutes(10)), side_output(after=minutes(10))])
def test_late_rows_are_listed_where_they_are(tmp_path: Path, policy: Late) -> None:
    """Dropped ones stand in the input, those set aside beside the table."""
    web = owner(tmp_path, "web", [view(1)], [view(2, at=START - timedelta(hours=2)), view(3)])
    declared = web.catalog["gold.page_views_per_minute"]
    entry = Entry(kind="batch", app="web", epoch=1, ingest_seq=2, totals=Counts(read=3, taken=2, late=1))

    found = {
        one.number: one for one in behind(replace(declared, table=replace(declared.table, late=policy)), entry, rows=0)
    }

    if isinstance(policy, SideOutput):
        assert found["late"].command == 'deltaworks sql "select * from gold.page_views_per_minute__late"'
    else:
        assert listed(web, found["late"]) == 1


@pytest.mark.parametrize(("app", "records"), [("web", [view(1), view(1)]), ("shop", [tombstone(1)])])
def test_commands_fit_a_terminal_and_a_shell(tmp_path: Path, app: str, records: list[Record]) -> None:
    """No line is wider than 80 columns, and nothing in it means something to a shell."""
    lake = owner(tmp_path, app, records)
    commands = [
        one.command for name in lake.catalog.tables for one in Ledger(lake.catalog, lake.settings.lake).behind(name)
    ]

    assert len(commands) >= 4
    for command in commands:
        assert max(map(len, command.splitlines())) <= WIDTH
        assert not re.search(r"[$`\\!]", command)
