"""Keys that are not the record's: which row a change found is told by the row of before."""

from pathlib import Path
from typing import Any

import pytest

from deltaworks.engine.checker import Picture, check
from deltaworks.engine.parse import parser
from deltaworks.words import Column, debezium, keep
from tests.bronze_rows import bronze
from tests.chance import seeded
from tests.customers import in_batches, shuffled
from tests.flows import Owner
from tests.full_rows import goods, kept, lived
from tests.handed import Hand
from tests.source_table import PLACEHOLDER
from tests.unit.test_parse_debezium import change

COLUMNS = (
    Column("a", "bigint", null=False, doc="A key."),
    Column("b", "decimal(5,2)", null=False, doc="A key."),
    Column("n", "int", doc="No key."),
)
NOW = {"a": 1, "b": "2.00", "n": 3}
FULL = {"replica_identity": "full"}


def parsed(value: str, key: str | None, **words: Any) -> dict[str, Any]:
    """Parse one record of a table that is kept by a and b."""
    made = parser(debezium("bronze.shop_changes", table="public.people", **words), COLUMNS, ("a", "b"))
    (row,) = made.parse(bronze([value], keys=[key])).to_pylist()
    return dict(row)


@pytest.mark.parametrize(("key", "words"), [(None, {}), (None, FULL), ('{"id":1}', FULL), ('{"a":1}', FULL)])
@pytest.mark.parametrize(
    ("before", "left"),
    [
        (NOW, None),
        (NOW | {"n": 7}, None),
        (NOW | {"b": "2.0"}, None),
        (NOW | {"a": 5}, (5, "2.00")),
        (NOW | {"b": "2.1", "n": None}, (1, "2.10")),
    ],
)
def test_an_update_says_which_keys_its_row_has_left(
    key: str | None, words: dict[str, Any], before: dict[str, Any], left: tuple[int, str] | None
) -> None:
    """Whatever else has changed, and however the same value is written."""
    row = parsed(change("u", NOW, before=before), key, **words)

    assert (row["_kind"], row["a"], str(row["b"]), row["n"]) == ("row", 1, "2.00", 3)
    assert (row["_left"] and (row["_left"]["a"], str(row["_left"]["b"]))) == left


@pytest.mark.parametrize(("key", "words"), [(None, {}), ('{"id":1}', FULL)])
def test_a_deletion_is_told_by_the_row_of_before(key: str | None, words: dict[str, Any]) -> None:
    """By its keys; nothing else of it is taken."""
    row = parsed(change("d", before=NOW), key, **words)

    assert (row["_kind"], row["a"], str(row["b"]), row["n"], row["_left"]) == ("delete", 1, "2.00", None, None)


@pytest.mark.parametrize("op", ["u", "d"])
@pytest.mark.parametrize(
    ("key", "words", "before", "reason"),
    [
        ('{"id":1}', {}, NOW, "key: a: missing"),
        ('{"a":1}', {}, NOW, "key: b: missing"),
        ('{"id":1}', FULL, None, "before: missing"),
        ('{"id":1}', FULL, {"a": 1}, "before: b: missing"),
        (None, {}, {"a": 1}, "before: b: missing"),
    ],
)
def test_a_change_that_does_not_tell_its_row_is_refused(
    op: str, key: str | None, words: dict[str, Any], before: dict[str, Any] | None, reason: str
) -> None:
    """Under default identity `before` has invented values, and nothing in the record says so."""
    row = parsed(change(op, NOW if op == "u" else None, before=before), key, **words)

    assert (row["_kind"], row["_reason"]) == ("refused", reason)


@pytest.mark.parametrize(("key", "before"), [(None, None), ("{", None), ("{", NOW | {"a": 5})])
def test_an_update_that_cannot_tell_is_a_row(key: str | None, before: dict[str, Any] | None) -> None:
    """Of Postgres no record is so: one that a transformation has stripped, or whose key is no JSON."""
    assert parsed(change("u", NOW, before=before), key, **FULL)["_kind"] == "row"


def test_a_key_of_before_that_does_not_fit_is_refused() -> None:
    """What its row was cannot be told."""
    row = parsed(change("u", NOW, before=NOW | {"b": None}), None)

    assert (row["_kind"], row["_reason"], row["_left"]) == ("refused", "before: b: null", None)


def test_the_records_key_counts_where_it_has_the_declared_ones() -> None:
    """Also where there is a `before`: the connector makes a deletion and an insert of another key."""
    updated = parsed(change("u", NOW, before=NOW | {"a": 5}), '{"b":"2.00","a":1}')
    deleted = parsed(change("d", before=NOW | {"a": 0}), '{"b":"2.00","a":1}', **FULL)

    assert (updated["_kind"], updated["_left"]) == ("row", None)
    assert (deleted["_kind"], deleted["a"]) == ("delete", 1)


NOTE, REST = Column("n", "string", absent="kept", doc="Large."), Column("rest", "string", doc="What else comes.")
UNSENT: dict[str, Any] = {"a": 2, "b": "2.00", "n": PLACEHOLDER, "x": PLACEHOLDER, "y": 1}
WAS: dict[str, Any] = UNSENT | {"a": 1, "n": "was", "x": 1.50, "y": 0}


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(
    ("key", "words"),
    [(None, {}), ('{"schema":null,"payload":null}', {}), ('{"id":1}', FULL), ('{"a":2,"b":"2.00"}', FULL)],
)
@pytest.mark.parametrize("lacking", [(), ("n",)])
def test_what_an_update_does_not_send_is_as_it_was_before(
    key: str | None, words: dict[str, Any], lacking: tuple[str, ...], *, partial: bool
) -> None:
    """Declared or not, where the row of before counts: no other change of the keys that it has now has sent it."""
    reads = debezium("bronze.shop_changes", table="public.people", unknown_fields=keep("rest"), **words)
    made = parser(reads, (*COLUMNS[:2], NOTE, REST), ("a", "b"), partial=partial)
    after = {name: value for name, value in UNSENT.items() if name not in lacking}

    (row,) = made.parse(bronze([change("u", after, before=WAS)], keys=[key])).to_pylist()

    assert (row["_kind"], row["_reason"], row["_sent"]) == ("row", None, None)
    assert (row["a"], row["n"], row["rest"]) == (2, "was", '{"x":1.5,"y":1}')
    assert (row["_left"] is None) == (key == '{"a":2,"b":"2.00"}')


@pytest.mark.parametrize(
    ("key", "words", "before"),
    [
        ('{"a":2,"b":"2.00"}', {}, WAS),
        ('{"a":2,"b":"2.00"}', FULL, None),
        (None, {}, UNSENT),
        (None, FULL, {"a": 1, "b": "2.00"}),
    ],
)
def test_what_nothing_sends_is_not_known(key: str | None, words: dict[str, Any], before: dict[str, Any] | None) -> None:
    """Under another identity `before` has invented values; under the full one a column can be missing there too."""
    row = parsed(change("u", {"a": 2, "b": "2.00", "n": PLACEHOLDER}, before=before), key, **words)

    assert (row["_kind"], row["_reason"]) == ("refused", "n: value not sent")


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("run", range(3))
def test_rows_that_leave_their_keys_are_there_once(tmp_path: Path, run: int, *, keyed: bool) -> None:
    """In order, or in any order with copies and a restart: what is there now, and one state of each key at a time."""
    chance = seeded()
    source = lived(chance, 40 + 30 * run, keyed=keyed)
    hand: Any = Hand()  # it makes of rows what a session would
    found = []
    for name, parts in (("calm", [source.log]), ("wild", shuffled(chance, source.log, cuts=3 + run))):
        owner = Owner(hand, goods(tmp_path / name, keyed=keyed), "tiny")
        in_batches(owner, parts[:1])
        owner.start()
        in_batches(owner, parts)
        then = owner.rows("silver.goods_then")
        found.append(sorted((*row.values(),) for row in then))

        assert kept(owner.rows("silver.goods")) == source.there()
        assert kept([row for row in then if row["is_current"]]) == source.there()
        assert owner.verdicts() == {"ok"}
        with Picture(owner.catalog, owner.settings.lake) as picture:
            assert not check(picture, at_rest=False)

    assert len(found[0]) > len(source.rows) > 0
    assert found[0] == found[1]
