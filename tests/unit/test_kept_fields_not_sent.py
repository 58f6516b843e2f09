"""Undeclared fields that are kept: what an update leaves out keeps the value that was sent last, field by field."""

import json as js
from pathlib import Path
from typing import Any

import pytest

from deltaworks.engine.parse import parser
from deltaworks.engine.parsing.fields import with_parts
from deltaworks.quality.rule import Length, Rule
from deltaworks.words import Column, debezium, ignore, keep
from deltaworks.words.reading import UnknownFields
from tests.bronze_rows import bronze
from tests.chance import seeded
from tests.flows import Record
from tests.source_table import LARGE, PLACEHOLDER, SourceTable, lived
from tests.unit.test_partial_changes import Lake, in_batches, there

ID, NOTE = Column("id", "bigint", null=False, doc="The key."), Column("note", "string", doc="A text.")
CITY, REST = Column("city", "string", doc="Small."), Column("rest", "string", doc="What else comes.")
BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
FORMS: dict[str, Any] = {
    "text": PLACEHOLDER,
    "bytes": BASE64,
    "array of texts": [PLACEHOLDER],
    "array of bytes": [BASE64],
    "array of UUIDs": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    "array of numbers": [*PLACEHOLDER.encode()],
    "map": {PLACEHOLDER: PLACEHOLDER},
    "map as JSON": js.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":")),
}


class Keeping(Lake):
    """The same table, which declares no large value and keeps what comes."""

    columns = (ID, CITY, REST)
    reads = debezium("bronze.shop_changes", table="public.members", unknown_fields=keep("rest"))

    def rows(self) -> list[tuple[Any, ...]]:
        """As if they were declared."""
        found = self.main.read(["id", "city", "rest"]).to_pylist()
        rests = [js.loads(row["rest"]) for row in found]
        assert all(list(rest) == [*LARGE] for rest in rests), "in the order in which they are sent"
        rows = zip(found, rests, strict=True)
        return sorted((row["id"], row["city"], *(rest[name] for name in LARGE)) for row, rest in rows)


def parsed(after: Any, *, op: str = "u", partial: bool = True, unknown: UnknownFields | None = None) -> dict[str, Any]:
    """Parse one change of public.members with the columns id, note and rest."""
    reads = debezium("bronze.changes", table="public.members", unknown_fields=unknown or keep("rest"))
    source = {"schema": "public", "table": "members", "lsn": 7, "snapshot": "false"}
    value = js.dumps({"before": None, "after": after, "source": source, "op": op})
    (row,) = parser(reads, (ID, NOTE, REST), ("id",), partial=partial).parse(bronze([value])).to_pylist()
    return dict(row)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_the_placeholder_is_no_value(form: str) -> None:
    """Kept or declared; what a value is made of does not matter otherwise."""
    kept = parsed({"id": 1, "note": "a", "small": 3, "large": FORMS[form], "nothing": None})
    declared = parsed({"id": 1, "note": FORMS[form]})

    assert (kept["_kind"], kept["_sent"]) == ("row", '{"rest:large": ""}')
    assert js.loads(kept["rest"])["small"] == 3
    assert (declared["_kind"], declared["note"], declared["_sent"]) == ("row", None, '{"note": ""}')


@pytest.mark.parametrize(
    "value",
    [None, "", [], {}, [None], PLACEHOLDER + " ", PLACEHOLDER[1:], [PLACEHOLDER, PLACEHOLDER], [95, 95, 100],
     {PLACEHOLDER: None}, {"large": PLACEHOLDER}, [[PLACEHOLDER]], 95, False],
)  # fmt: skip
def test_what_only_resembles_it_is_a_value(value: Any) -> None:
    """Null, what is empty, what holds it among other things."""
    row = parsed({"id": 1, "large": value})

    assert (row["_kind"], row["_sent"]) == ("row", None)
    assert js.loads(row["rest"]) == {"large": value}


@pytest.mark.parametrize(("op", "partial"), [("c", True), ("r", True), ("u", False)])
def test_a_change_that_may_leave_nothing_out_is_refused(op: str, partial: bool) -> None:
    """An insert carries all; a history does not take such changes. The reason names the column, not the field."""
    row = parsed({"id": 1, "large": PLACEHOLDER}, op=op, partial=partial)

    assert (row["_kind"], row["_reason"], row["rest"]) == ("refused", "rest: value not sent", None)


def test_fields_that_are_not_kept_say_nothing() -> None:
    """Who drops them has nothing to keep."""
    row = parsed({"id": 1, "large": [PLACEHOLDER]}, unknown=ignore())

    assert (row["_kind"], row["_sent"], row["_strays"]) == ("row", None, '["large"]')


def test_rules_judge_what_is_kept_when_it_was_sent() -> None:
    """With a placeholder in it the text is not the row's."""
    rule = Rule(name="short", critical=True, check=Length(column="rest", least=None, most=20))
    reads = debezium("bronze.changes", table="public.members", unknown_fields=keep("rest"))
    source = {"schema": "public", "table": "members", "lsn": 7, "snapshot": "false"}
    values = [
        js.dumps({"after": {"id": 1, "large": large}, "source": source, "op": "u"}) for large in (PLACEHOLDER, "x" * 30)
    ]

    rows = parser(reads, (ID, REST), ("id",), partial=True, rules=(rule,)).parse(bronze(values)).to_pylist()

    assert [row["_reason"] for row in rows] == [None, "rule: short"]


def test_what_an_update_leaves_out_stays_beside_what_it_changes(tmp_path: Path) -> None:
    """Of the fields in one text some are new, some as they were, each with its digits; null is sent."""
    lake = Keeping(tmp_path)
    source = '{"schema":"public","table":"members","lsn":%d,"snapshot":"false"}'
    rests = [
        '"n":1.50,"tags":["a","b"],"counts":[1,2],"bio":"é"',
        f'"n":2.0,"tags":["{PLACEHOLDER}"],"counts":[1,2],"bio":null',
        f'"n":2.00,"tags":["c"],"counts":{[*PLACEHOLDER.encode()]},"bio":"{PLACEHOLDER}"',
    ]
    shown = []
    for lsn, rest in enumerate(rests, 1):
        after = f'{{"id":1,"city":"Graz",{rest}}}'
        op = "c" if lsn == 1 else "u"
        value = f'{{"before":null,"after":{after},"source":{source % lsn},"op":"{op}"}}'
        lake.take([Record(topic="shop.changes", key=b'{"id":1}', value=value.encode())])
        shown += lake.main.read(["rest"])["rest"].to_pylist()

    assert shown == [
        '{"n":1.50,"tags":["a","b"],"counts":[1,2],"bio":"é"}',
        '{"n":2.0,"tags":["a","b"],"counts":[1,2],"bio":null}',
        '{"n":2.00,"tags":["c"],"counts":[1,2],"bio":null}',
    ]
    assert lake.aside() == []


def test_nothing_to_take_a_value_from_is_refused_and_waits(tmp_path: Path) -> None:
    """No row with a placeholder is shown; when an older change brings the value the row appears."""
    source, lake = SourceTable(), Keeping(tmp_path)
    source.insert(1, city="Graz", bio="long", cv="longer")
    source.update(1, city="Linz")
    first, second = source.log

    lake.take([second])
    before, aside = lake.rows(), lake.aside()
    lake.open()
    lake.take([first])

    assert (before, aside) == ([], ["rest: value not sent, and no earlier change has it"])
    assert lake.rows() == there(source) == [(1, "Linz", "long", "longer")]


def test_a_field_that_no_row_before_has_goes() -> None:
    """The source may have got it after that row was sent."""
    assert with_parts('{"a":1,"b":"?"}', {"b": '{"a":2}'}) == '{"a":1}'
    assert with_parts('{"b":"?"}', {"b": None}) is None
    assert with_parts('{"b":"?","a":1}', {"b": '{"a":2,"b":1e5}'}) == '{"b":1e5,"a":1}'


@pytest.mark.parametrize("number", range(12))
def test_any_order_and_any_cut_end_in_the_source(tmp_path: Path, number: int) -> None:
    """Every change once or more, in any order, in batches of any size, with restarts."""
    chance = seeded()
    source, lake = lived(chance, 30), Keeping(tmp_path)
    records = source.log + chance.sample(source.log, 5)

    in_batches(lake, chance.sample(records, len(records)) if number else records, chance)

    assert lake.rows() == there(source)


@pytest.mark.parametrize("_number", range(8))
def test_with_changes_missing_it_says_what_declared_columns_say(tmp_path: Path, _number: int) -> None:
    """The same rows, the same refusals, whatever came."""
    chance = seeded()
    source = lived(chance, 30)
    records = chance.sample(source.log, len(source.log) * 2 // 3)
    declared, kept = Lake(tmp_path / "declared"), Keeping(tmp_path / "kept")

    for record in records:
        for lake in (declared, kept):
            lake.take([record])

    assert kept.rows() == declared.rows()
    assert len(kept.aside()) == len(declared.aside())
