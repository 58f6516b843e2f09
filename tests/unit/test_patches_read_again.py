"""Who reads bronze again meets the patches that the table has used, and those of now where rules of now count."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks.engine import rebuild
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.finding import Finding
from deltaworks.engine.checker.replay import replay as replay_bronze
from deltaworks.engine.prove import prove
from deltaworks.errors import CommandError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop, command, replay
from tests.flows import Log, carry_out
from tests.patching import patch, place, withdraw
from tests.shop_rows import broken, change, customer, order, view
from tests.source_table import SourceTable, people
from tests.unit.test_rewind import staged

Lake = tuple[ArrowOwner, Log, str, list[dict[str, Any]], Callable[[dict[str, Any]], bytes]]
"""An owner, its log, a table, three refused rows in order, and what mends one."""


def events(folder: Path) -> Lake:
    """Page views, three of them broken."""
    owner, log = ArrowOwner(Shop(folder / "project").without_gold().settings(folder / "data"), "web"), Log()
    for number in range(3):
        log.send([view(number), broken(b"{" * (number + 1)), view(number)])
        owner.take(log.batch())

    def value(row: dict[str, Any]) -> bytes:
        return view(10 + row["offset"]).value or b""

    return owner, log, "silver.page_views", refused(owner, "silver.page_views"), value


def changes(table: str) -> Callable[[Path], Lake]:
    """Changes of a database, three of them with a value that does not fit; customers' are overtaken by newer ones."""
    name, wrong, right = ("orders", "status", "paid") if table == "silver.orders" else ("customers", "name", "Ed")

    def made(folder: Path) -> Lake:
        owner, log = ArrowOwner(Shop(folder / "project").without_gold().settings(folder / "data"), "shop"), Log()
        for number in range(3):
            row = order(number) if name == "orders" else customer(number, "Ann")
            rows = [row, {**row, wrong: 7}, *([row] if name == "customers" else [])]
            log.send(change("u", one, lsn=10 * number + at, table=name) for at, one in enumerate(rows, start=1))
            owner.take(log.batch())

        def value(row: dict[str, Any]) -> bytes:
            envelope = json.loads(row["value"])
            envelope["after"][wrong] = right
            return json.dumps(envelope).encode()

        return owner, log, table, refused(owner, table), value

    return made


LAKES = pytest.mark.parametrize(
    "lake", [events, changes("silver.orders"), changes("silver.customers")], ids=["events", "latest", "history"]
)


def refused(owner: ArrowOwner, table: str) -> list[dict[str, Any]]:
    """What lies in a table's quarantine, in the order of its offsets."""
    return sorted(owner.rows(f"{table}__quarantine"), key=lambda row: int(row["offset"]))


def findings(owner: ArrowOwner, folder: Path) -> list[Finding]:
    """What the checker has against the lake, bronze taken anew included."""
    none: Any = None
    owner.flow.settle()
    folder.mkdir()
    with Picture(owner.catalog, owner.settings.lake) as picture:
        return [*check(picture, at_rest=True), *replay_bronze(picture, none, owner.settings.changed(data=folder))]


def proved(owner: ArrowOwner, table: str, folder: Path) -> str:
    """What comes of proving a table."""
    none: Any = None
    folder.mkdir()
    anew = owner.settings.changed(data=folder)
    return prove(table, catalog=owner.catalog, lake=owner.settings.lake, spark=none, anew=anew, keys_min=1).verdict


def built_anew(owner: ArrowOwner, table: str, *, name: str) -> None:
    """Lay a table out anew, in the folder that the order to publish it names."""
    none: Any = None
    folder = owner.settings.data / "staged" / name
    folder.mkdir(parents=True)
    anew = owner.settings.changed(data=folder)
    rebuild.stage(table, catalog=owner.catalog, lake=owner.settings.lake, spark=none, anew=anew)


@LAKES
def test_patches_count_where_they_were_used(tmp_path: Path, lake: Callable[[Path], Lake]) -> None:
    """Of two patches one was used: bronze taken anew has that one. A rebuild is by the patches of now, as by rules."""
    owner, _, table, rows, value = lake(tmp_path)
    patch(owner, table, rows[0], value(rows[0]), number=1)
    replay(owner, table, number=2)
    patch(owner, table, rows[1], value(rows[1]), number=3)
    used = owner.rows(table)

    assert [row["offset"] for row in refused(owner, table)] == [rows[1]["offset"], rows[2]["offset"]]
    assert findings(owner, tmp_path / "then") == []
    assert proved(owner, table, tmp_path / "proof then") == "proved"
    built_anew(owner, table, name="one")
    carry_out(owner, command("publish", table, number=4, folder="one"))
    owner.take(Log().batch())

    both = owner.rows(table)
    assert (len(refused(owner, table)), both != used) == (1, True)
    assert findings(owner, tmp_path / "now") == []
    assert proved(owner, table, tmp_path / "proof now") == "proved"
    replay(owner, table, number=5)
    assert owner.rows(table) == both
    assert len(owner.rows(f"{table}__patches")) == 2


def test_event_that_came_again_between_patch_and_replay_is_the_one_that_counts(tmp_path: Path) -> None:
    """The patched row was a copy then; taken anew, bronze has it first, and it is none of the table's."""
    owner, log, table, rows, value = events(tmp_path)
    again = json.loads(value(rows[0])) | {"page": "/sent-again"}
    patch(owner, table, rows[0], value(rows[0]), number=1)
    patch(owner, table, rows[1], value(rows[1]), number=2)
    log.send([replace(view(50), value=json.dumps(again).encode())])
    owner.take(log.batch())
    done = replay(owner, table, number=3)

    pages = [row["page"] for row in owner.rows(table) if row["event_id"] == again["event_id"]]
    assert (done["moved"], done["taken"], pages) == (2, 1, ["/sent-again"])
    assert findings(owner, tmp_path / "checked") == []
    assert proved(owner, table, tmp_path / "proof") == "proved"


def test_patch_of_a_row_that_waits_for_a_value_counts_instead_of_it(tmp_path: Path) -> None:
    """And in what a newer change, which waits too, has from it: all of its values are those of the patch."""
    owner, log, source = ArrowOwner(people(tmp_path), "tiny"), Log(), SourceTable()
    table = "silver.people"
    source.insert(1, city="Graz", bio="b", cv="v")
    source.update(1, city="Linz", bio="X")
    source.update(1, city="Enns")
    for record in source.log[1:]:
        log.send([record])
        owner.take(log.batch())
    first, second = refused(owner, table)
    envelope = json.loads(first["value"])
    envelope["after"] |= {"city": "Wien", "bio": "B", "cv": "V"}
    patch(owner, table, first, json.dumps(envelope).encode(), number=1)
    replay(owner, table, number=2)
    both = owner.rows(table)
    source.update(1, city="Ried")
    log.send([source.log[-1], source.log[0]])
    owner.take(log.batch())

    assert second["reason"].startswith("cv: value not sent")
    assert both == [{"id": 1, "city": "Enns", "bio": "B", "cv": "V"}]
    assert owner.rows(table) == [{"id": 1, "city": "Ried", "bio": "B", "cv": "V"}]
    assert findings(owner, tmp_path / "checked") == []
    assert proved(owner, table, tmp_path / "proof") == "proved"


def test_patch_of_the_only_change_of_a_row_is_the_row(tmp_path: Path) -> None:
    """Its copy that waits for a value has the same sequence, and does not count, now or later."""
    owner, log, source = ArrowOwner(people(tmp_path), "tiny"), Log(), SourceTable()
    table = "silver.people"
    source.insert(1, city="Graz", bio="b", cv="v")
    source.update(1, city="Linz")
    log.send([source.log[1]])
    owner.take(log.batch())
    (row,) = refused(owner, table)
    with pytest.raises(CommandError, match="waits for a value"):
        carry_out(owner, command("discard_refused_row", table, number=9, **place(row)))
    envelope = json.loads(row["value"])
    envelope["after"] |= {"city": "Wien", "bio": "B", "cv": "V"}
    patch(owner, table, row, json.dumps(envelope).encode(), number=1)
    replay(owner, table, number=2)
    patched = owner.rows(table)
    log.send([source.log[0]])
    owner.take(log.batch())

    assert patched == owner.rows(table) == [{"id": 1, "city": "Wien", "bio": "B", "cv": "V"}]
    assert findings(owner, tmp_path / "checked") == []
    assert proved(owner, table, tmp_path / "proof") == "proved"


def test_patch_changes_what_the_row_that_is_there_has_from_it(tmp_path: Path) -> None:
    """A newer change was whole by a value of the row that waits; that value is the patch's now."""
    owner, log, source = ArrowOwner(people(tmp_path), "tiny"), Log(), SourceTable()
    table = "silver.people"
    source.insert(1, city="Graz", bio="b", cv="v")
    source.update(1, city="Linz", bio="X")
    source.update(1, city="Enns", cv="C")
    for record in source.log[1:]:
        log.send([record])
        owner.take(log.batch())
    before = owner.rows(table)
    (row,) = refused(owner, table)
    envelope = json.loads(row["value"])
    envelope["after"] |= {"bio": "B", "cv": "V"}
    patch(owner, table, row, json.dumps(envelope).encode(), number=1)
    replay(owner, table, number=2)

    assert before == [{"id": 1, "city": "Enns", "bio": "X", "cv": "C"}]
    assert owner.rows(table) == [{"id": 1, "city": "Enns", "bio": "B", "cv": "C"}]
    assert findings(owner, tmp_path / "checked") == []
    assert proved(owner, table, tmp_path / "proof") == "proved"


@LAKES
def test_rewind_brings_a_patched_row_back_to_quarantine_with_its_patch(
    tmp_path: Path, lake: Callable[[Path], Lake]
) -> None:
    """To before the replay: what bronze still tells of is carried out again. To before the row came: at once."""
    owner, log, table, rows, value = lake(tmp_path)
    own = owner.flow.inputs[table].table
    before, as_it_came = own.version, owner.rows(table)
    patch(owner, table, rows[1], value(rows[1]), number=1)
    replay(owner, table, number=2)
    patched = owner.rows(table)

    staged(owner, table, before)
    carry_out(owner, command("publish", table, number=3, folder="one"))
    back, there = owner.rows(table), len(refused(owner, table))
    verdict = proved(owner, table, tmp_path / "proof back")
    log.send([view(50), change("c", order(50), lsn=99)])
    owner.take(log.batch())
    again = owner.rows(table)
    checked = findings(owner, tmp_path / "back")
    staged(owner, table, 0, name="two")
    carry_out(owner, command("publish", table, number=4, folder="two"))
    owner.take(Log().batch())

    assert (back, there, verdict) == (as_it_came, 3, "proved")
    assert patched != as_it_came
    assert [row for row in patched if row not in again] == []
    assert checked == []
    assert owner.rows(table) == again
    assert [row["offset"] for row in refused(owner, table)] == [rows[0]["offset"], rows[2]["offset"]]
    assert findings(owner, tmp_path / "begun anew") == []
    assert proved(owner, table, tmp_path / "proof") == "proved"


@LAKES
def test_tables_that_were_staged_before_a_patch_are_not_published(tmp_path: Path, lake: Callable[[Path], Lake]) -> None:
    """Else the table would have the row without the patch, or with one that was withdrawn."""
    owner, _, table, rows, value = lake(tmp_path)

    built_anew(owner, table, name="one")
    patch(owner, table, rows[0], value(rows[0]), number=1)
    with pytest.raises(CommandError, match=f"command 1 has changed {table}__patches since it was staged"):
        carry_out(owner, command("publish", table, number=2, folder="one"))
    built_anew(owner, table, name="two")
    withdraw(owner, table, rows[0], number=3)
    with pytest.raises(CommandError, match=f"command 3 has changed {table}__patches since it was staged"):
        carry_out(owner, command("publish", table, number=4, folder="two"))
    built_anew(owner, table, name="three")
    carry_out(owner, command("publish", table, number=5, folder="three"))

    assert len(refused(owner, table)) == 3
    assert findings(owner, tmp_path / "then") == []
