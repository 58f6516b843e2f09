"""Refused rows that somebody patches: the table takes the new value wherever it takes them, bronze keeps what came."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.finding import Finding
from deltaworks.errors import CommandError, LakeError
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop, command, replay
from tests.flows import START, Crash, Log, carry_out, take_arrow
from tests.patching import patch, place, withdraw
from tests.shop_rows import broken, change, customer, order, view

ORDERS, CUSTOMERS, VIEWS = "silver.orders", "silver.customers", "silver.page_views"


def findings(owner: ArrowOwner) -> list[Finding]:
    """What the checker has against the lake."""
    owner.flow.settle()
    with Picture(owner.catalog, owner.settings.lake) as picture:
        return check(picture, at_rest=False)


def refused(owner: ArrowOwner, table: str) -> list[dict[str, Any]]:
    """What lies in a table's quarantine, in the order of its offsets."""
    return sorted(owner.rows(f"{table}__quarantine"), key=lambda row: int(row["offset"]))


def bad_order(folder: Path) -> tuple[ArrowOwner, Log]:
    """Three changes of one order of which a rule refuses the second, and another order."""
    owner, log = ArrowOwner(Shop(folder / "project").settings(folder / "data"), "shop"), Log()
    for part in (
        [change("c", order(1), lsn=1), change("u", order(1, status="payd"), lsn=2), change("c", order(2), lsn=3)],
        [change("u", order(1, status="cancelled"), lsn=4), change("c", order(3, status="lost"), lsn=5)],
    ):
        log.send(part)
        owner.take(log.batch())
    return owner, log


def mended(row: dict[str, Any], **fields: object) -> bytes:
    """The change of a database with other values in its row."""
    envelope = json.loads(row["value"])
    envelope["after"] |= fields
    return json.dumps(envelope).encode()


def test_patched_event_comes_with_its_place_and_its_time(tmp_path: Path) -> None:
    """It is as late as it was, what came stays as it was, and who patched it is known."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "web"), Log()
    for part in ([view(1), broken(b"{")], [view(2), broken(b"\xff")]):
        log.send(part)
        owner.take(log.batch())
    first, second = refused(owner, VIEWS)
    value = view(7).value
    assert value is not None

    patched = patch(owner, VIEWS, first, value)
    aside = owner.rows(f"{VIEWS}__quarantine")
    done = replay(owner, VIEWS)

    (stood,) = owner.flow.sides[VIEWS]["patches"].read().to_pylist()
    row = next(row for row in owner.flow.inputs[VIEWS].table.read().to_pylist() if row["event_id"] == "e7")
    assert (patched, len(aside)) == ({"patched": 1}, 2)
    assert (done["moved"], done["taken"], done["still_refused"]) == (1, 1, 1)
    assert (row["_source"], row["_seq"], row["_arrived"]) == ("page_views/00001/00000000000000000001", 1,
                                                              first["timestamp"])  # fmt: skip
    assert (stood["offset"], stood["value"], stood["patched_by"], stood["reason"], stood["patched_at"],
            stood["command"]) == (first["offset"], value, "tests", "tried", START, 5)  # fmt: skip
    assert [row["value"] for row in owner.rows(f"{VIEWS}__quarantine")] == [second["value"]]
    bronze = [row["value"] for row in owner.rows("bronze.web_events")]
    assert (b"{" in bronze, value in bronze) == (True, False)
    assert owner.verdicts() == {"ok"}
    assert findings(owner) == []


def test_patched_change_that_newer_ones_overtook_is_placed_by_its_sequence(tmp_path: Path) -> None:
    """It changes nothing in a table of newest states; one that nothing overtook comes."""
    owner, _ = bad_order(tmp_path)
    overtaken, newest = refused(owner, ORDERS)

    patch(owner, ORDERS, overtaken, mended(overtaken, status="paid"), number=1)
    patch(owner, ORDERS, newest, mended(newest, status="paid"), number=2)
    done = replay(owner, ORDERS)

    rows = [(row["order_id"], row["status"]) for row in owner.rows(ORDERS)]
    assert (done["moved"], done["not_mine"], done["still_refused"]) == (2, 0, 0)
    assert rows == [(1, "cancelled"), (2, "placed"), (3, "paid")]
    assert findings(owner) == []


def test_patched_change_lands_at_its_place_in_a_history(tmp_path: Path) -> None:
    """Between the states before and after it."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "shop"), Log()
    rows = [customer(1, "Ann"), {**customer(1, "Bob"), "created_at": "long ago"}, customer(1, "Cid")]
    for lsn, row in enumerate(rows, start=1):
        log.send([change("u", row, lsn=lsn, table="customers")])
        owner.take(log.batch())
    (bad,) = refused(owner, CUSTOMERS)

    patch(owner, CUSTOMERS, bad, mended(bad, created_at=rows[0]["created_at"], name="Ben"))
    replay(owner, CUSTOMERS)

    states = owner.flow.inputs[CUSTOMERS].table.read().sort_by("_source")
    assert states["name"].to_pylist() == ["Ann", "Ben", "Cid"]
    assert states["is_current"].to_pylist() == [False, False, True]
    assert findings(owner) == []


def mend_all(owner: ArrowOwner) -> dict[str, Any]:
    """Patch what silver.orders has refused, and have it judged again."""
    for row in refused(owner, ORDERS):
        patch(owner, ORDERS, row, mended(row, status="paid"), number=1 + row["offset"])
    return replay(owner, ORDERS, number=9)


def test_order_that_dies_anywhere_is_given_again(tmp_path: Path) -> None:
    """Patch and replay by owners that die before each commit in turn come to the same, once."""
    owner, log = bad_order(tmp_path)
    lake, copy = owner.settings.lake, tmp_path / "copy"
    shutil.copytree(lake, copy)
    epoch, died, crashed = owner.epoch, 0, True
    while crashed:
        crashed, owner.crash_at = False, owner.commits + died
        try:
            done = mend_all(owner)
        except Crash:
            crashed, owner.crash_at = True, -1
            died += 1
            owner.start()
            owner.catch_up(log)
            done = mend_all(owner)
        owner.crash_at = -1

        rows = [(row["order_id"], row["status"]) for row in owner.rows(ORDERS)]
        assert rows == [(1, "cancelled"), (2, "placed"), (3, "paid")], f"died before commit {died}"
        assert done["moved"] == 2
        assert len(owner.rows(f"{ORDERS}__patches")) == 2
        assert refused(owner, ORDERS) == []
        assert owner.verdicts() == {"ok"}
        assert findings(owner) == []
        shutil.rmtree(lake)
        shutil.copytree(copy, lake)
        owner.epoch = epoch
        owner.start()
    assert died >= 6  # two patches, the claim, bronze, the table, the rows that leave


def test_patch_is_replaced_and_withdrawn_while_its_row_is_refused(tmp_path: Path) -> None:
    """The last one counts; of one that was withdrawn nothing is left; what has left quarantine is decided."""
    owner, _ = bad_order(tmp_path)
    row = refused(owner, ORDERS)[1]

    patch(owner, ORDERS, row, mended(row, status="placed"), number=1)
    gone = withdraw(owner, ORDERS, row, number=2)
    again = withdraw(owner, ORDERS, row, number=3)
    nothing = replay(owner, ORDERS, number=4)
    patch(owner, ORDERS, row, mended(row, status="placed"), number=5)
    patch(owner, ORDERS, row, mended(row, status="paid"), number=6)
    done = replay(owner, ORDERS, number=7)

    assert (gone, again) == ({"withdrawn": 1}, {"withdrawn": 0})
    assert (nothing["moved"], done["moved"]) == (0, 1)
    assert [row["status"] for row in owner.rows(ORDERS) if row["order_id"] == 3] == ["paid"]
    assert [row["command"] for row in owner.rows(f"{ORDERS}__patches")] == [6]
    with pytest.raises(CommandError, match="has no undecided row from shop.changes/0/4"):
        withdraw(owner, ORDERS, row)
    with pytest.raises(CommandError, match="has no undecided row from shop.changes/0/4"):
        patch(owner, ORDERS, row, mended(row, status="placed"))
    assert findings(owner) == []


def test_refusal_that_a_crash_could_undo_is_not_patched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row lies in quarantine, its table has not confirmed it; once it has, the row can be patched."""
    owner, log = bad_order(tmp_path)
    owner.suspends = True
    owner.start()
    writer = next(one for one in owner.flow.writers if one.declared.name == ORDERS)

    def fails(*_: object) -> None:
        raise LakeError(ORDERS, "disk full", "Make room")

    monkeypatch.setattr(writer, "_keep", fails)
    log.send([change("c", order(4, status="lost"), lsn=6)])
    take_arrow(owner.flow, log.batch(), above=False)
    owner.flow.take_slice(ORDERS, None)
    row = refused(owner, ORDERS)[2]

    with pytest.raises(CommandError, match="has no undecided row from shop.changes/0/5"):
        patch(owner, ORDERS, row, mended(row, status="paid"))
    owner.now += 10
    owner.flow.take_slice(ORDERS, None)
    assert patch(owner, ORDERS, row, mended(row, status="paid")) == {"patched": 1}


def test_patch_that_would_be_refused_says_why_at_once(tmp_path: Path) -> None:
    """Without a value in the reason; nothing is made, nothing is changed."""
    owner, _ = bad_order(tmp_path)
    row = refused(owner, ORDERS)[0]
    version = owner.flow.sides[ORDERS]["quarantine"].version
    wrong = [
        (b"{secret", "not a Debezium envelope"),
        (mended(row, status="secret"), r"rule: expect_column_values_to_be_in_set\(status\)"),
        (mended(row, status="paid", amount="__debezium_unavailable_value"), "amount: value not sent"),
        (change("u", customer(1, "secret"), lsn=2, table="customers").value or b"", "it is no row of this table"),
    ]

    for value, why in wrong:
        with pytest.raises(CommandError, match=f"would refuse the new value of shop.changes/0/1 too: {why}") as told:
            patch(owner, ORDERS, row, value)
        assert "secret" not in str(told.value)

    with pytest.raises(CommandError, match="no undecided row from shop.changes/0/77"):
        patch(owner, ORDERS, {**row, "offset": 77}, mended(row, status="paid"))
    with pytest.raises(CommandError, match="its value is not there any more"):
        carry_out(owner, command("patch_refused_row", ORDERS, folder="gone", topic="t", partition=0, offset=0))
    assert "patches" not in owner.flow.sides[ORDERS]
    assert owner.flow.sides[ORDERS]["quarantine"].version == version


def test_patch_is_of_the_row_that_its_key_names(tmp_path: Path) -> None:
    """Else it overwrites another one, or deletes it. A record whose own key says nothing may be any row's."""
    owner, log = bad_order(tmp_path)
    row = refused(owner, ORDERS)[0]
    log.send([replace(change("u", order(2, status="payd"), lsn=6), key=b"?")])
    owner.take(log.batch())
    keyless = refused(owner, ORDERS)[2]
    before = owner.rows(ORDERS)

    with pytest.raises(CommandError, match="would refuse the new value of shop.changes/0/1 too: its key is another"):
        patch(owner, ORDERS, row, mended(row, status="paid", order_id=2))
    replay(owner, ORDERS, number=8)
    assert owner.rows(ORDERS) == before
    patch(owner, ORDERS, keyless, mended(keyless, status="paid"), number=9)
    replay(owner, ORDERS, number=10)

    assert [row["status"] for row in owner.rows(ORDERS) if row["order_id"] == 2] == ["paid"]
    assert findings(owner) == []


def test_patch_is_a_row_or_a_deletion(tmp_path: Path) -> None:
    """One that is a truncation, or ends a snapshot, would empty the table; a deletion takes its own row."""
    owner, _ = bad_order(tmp_path)
    row = refused(owner, ORDERS)[1]
    envelope, before = json.loads(row["value"]), owner.rows(ORDERS)
    last = {**envelope, "op": "r", "source": {**envelope["source"], "snapshot": "last"}}
    last["after"] = {**envelope["after"], "status": "paid"}

    for wrong in ({**envelope, "op": "t", "after": None}, last):
        with pytest.raises(CommandError, match="it would empty the table"):
            patch(owner, ORDERS, row, json.dumps(wrong).encode(), number=1)
    patch(owner, ORDERS, row, json.dumps({**envelope, "op": "d", "after": None}).encode(), number=2)
    done = replay(owner, ORDERS, number=3)

    assert done["moved"] == 1
    assert owner.rows(ORDERS) == before
    assert findings(owner) == []


def test_row_that_ends_a_snapshot_is_patched(tmp_path: Path) -> None:
    """What came did so too: the table is emptied of what is older, whether the row is mended or not."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "shop"), Log()
    came = change("r", order(1, status="payd"), lsn=2)
    envelope = json.loads(came.value or b"")
    envelope["source"]["snapshot"] = "last"
    log.send([replace(came, value=json.dumps(envelope).encode())])
    owner.take(log.batch())
    (row,) = refused(owner, ORDERS)

    patch(owner, ORDERS, row, mended(row, status="paid"))

    assert replay(owner, ORDERS)["moved"] == 1
    assert [row["status"] for row in owner.rows(ORDERS)] == ["paid"]


def test_event_that_came_again_needs_no_patch(tmp_path: Path) -> None:
    """The producer has sent it once more, well-formed: a patch would be a copy of that."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "web"), Log()
    log.send([broken(b"{"), view(1)])
    owner.take(log.batch())
    (row,) = refused(owner, VIEWS)

    with pytest.raises(CommandError, match="has the event that page_views/1/0 would be") as told:
        patch(owner, VIEWS, row, view(1).value or b"")

    assert "quarantine discard" in str(told.value)
    assert "patches" not in owner.flow.sides[VIEWS]


def test_value_goes_with_the_order_that_carried_it(tmp_path: Path) -> None:
    """Whether it was taken or not; the order given again after its owner has died is done."""
    owner, _ = bad_order(tmp_path)
    row = refused(owner, ORDERS)[1]
    staged = owner.settings.data / "staged"

    with pytest.raises(CommandError, match="would refuse"):
        patch(owner, ORDERS, row, b"{", number=1)
    patch(owner, ORDERS, row, mended(row, status="paid"), number=2)
    left = list(staged.iterdir())
    owner.start()
    again = carry_out(owner, command("patch_refused_row", ORDERS, number=2, folder="patch-2", **place(row)))
    with pytest.raises(CommandError, match="its value is not there any more"):
        carry_out(owner, command("patch_refused_row", ORDERS, number=3, folder="patch-2", **place(row)))

    assert (left, again) == ([], {"patched": 1})
    assert len(owner.rows(f"{ORDERS}__patches")) == 1


def test_nothing_is_committed_where_no_patch_stands(tmp_path: Path) -> None:
    """A commit would say that something has changed, and tables that are staged would not be published."""
    owner, _ = bad_order(tmp_path)
    first, second = refused(owner, ORDERS)
    patch(owner, ORDERS, second, mended(second, status="paid"))
    version = owner.flow.sides[ORDERS]["patches"].version

    assert withdraw(owner, ORDERS, first) == {"withdrawn": 0}
    carry_out(owner, command("discard_refused_rows", ORDERS, number=8, cause="no row has this"))
    assert owner.flow.sides[ORDERS]["patches"].version == version
    carry_out(owner, command("discard_refused_rows", ORDERS, number=9))
    assert owner.rows(f"{ORDERS}__patches") == []


def test_discarded_row_has_no_patch_and_gets_none(tmp_path: Path) -> None:
    """Else a rebuild would bring it after all."""
    owner, _ = bad_order(tmp_path)
    row = refused(owner, ORDERS)[0]
    patch(owner, ORDERS, row, mended(row, status="paid"))

    carry_out(owner, command("discard_refused_rows", ORDERS))

    assert owner.rows(f"{ORDERS}__patches") == []
    with pytest.raises(CommandError, match="has no undecided row"):
        patch(owner, ORDERS, row, mended(row, status="paid"))
    assert findings(owner) == []


def test_one_row_is_discarded_and_its_neighbours_stay(tmp_path: Path) -> None:
    """Also where the owner dies between its commits; a row that nobody refused is an error that says where to look."""
    owner, log = ArrowOwner(Shop(tmp_path / "project").settings(tmp_path / "data"), "shop"), Log()
    log.send([change("c", order(number, status="lost"), lsn=number) for number in (1, 2, 3)])
    owner.take(log.batch())
    first, second, third = refused(owner, ORDERS)
    patch(owner, ORDERS, first, mended(first, status="paid"), number=1)
    patch(owner, ORDERS, second, mended(second, status="paid"), number=2)

    done = carry_out(owner, command("discard_refused_row", ORDERS, number=8, **place(second)))
    again = carry_out(owner, command("discard_refused_row", ORDERS, number=8, **place(second)))
    with pytest.raises(CommandError, match=r"no undecided row from .*quarantine show silver.orders"):
        carry_out(owner, command("discard_refused_row", ORDERS, number=9, **place(second)))

    assert done == again == {"discarded": 1}
    still = [row["offset"] for row in refused(owner, ORDERS) if row["state"] == "open"]
    assert still == [first["offset"], third["offset"]]
    assert [row["offset"] for row in owner.rows(f"{ORDERS}__patches")] == [first["offset"]]
    assert findings(owner) == []


def test_patch_counts_before_what_came_and_not_where_a_rule_refuses_it(tmp_path: Path) -> None:
    """A rule that was mended lets both pass: the patch is taken. One that refuses both leaves the row as it came."""
    project = Shop(tmp_path / "project")
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "shop"), Log()
    log.send([change("c", order(number, status="lost"), lsn=number) for number in (1, 2)])
    owner.take(log.batch())
    first, second = refused(owner, ORDERS)
    patch(owner, ORDERS, first, mended(first, status="paid"), number=1)
    patch(owner, ORDERS, second, mended(second, status="cancelled"), number=2)

    project.edit("silver/orders.yml", "[placed, paid, cancelled]", "[placed, cancelled]")
    owner.start()
    alone = replay(owner, ORDERS, number=3)
    project.edit("silver/orders.yml", "[placed, cancelled]", "[placed, paid, cancelled, lost]")
    owner.start()
    then = replay(owner, ORDERS, number=4)

    assert (alone["moved"], alone["still_refused"], then["moved"]) == (1, 1, 1)
    assert [row["status"] for row in owner.rows(ORDERS)] == ["paid", "cancelled"]
    assert findings(owner) == []


def test_owner_that_starts_knows_the_patches(tmp_path: Path) -> None:
    """Between the patch and the replay it was restarted."""
    owner, _ = bad_order(tmp_path)
    row = refused(owner, ORDERS)[1]
    patch(owner, ORDERS, row, mended(row, status="paid"))

    owner.start()
    owner.start()
    done = replay(owner, ORDERS)

    assert done["moved"] == 1
    assert owner.verdicts() == {"ok"}
