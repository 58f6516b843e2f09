"""A source changes its schema: fields are added, dropped, renamed, made wider or narrower, in events and in changes."""

import json as js
import logging
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from deltaworks.engine.parse import Parser, parser
from deltaworks.engine.parsing.fields import rest_of
from deltaworks.engine.writers.strays import count, tell
from deltaworks.quality.rule import Null, Rule
from deltaworks.words import Column, debezium, ignore, json, keep, refuse
from deltaworks.words.reading import UnknownFields
from tests.arrow_flows import ArrowOwner
from tests.broken_rules import Shop
from tests.bronze_rows import bronze
from tests.corpus import samples
from tests.flows import Log
from tests.shop_rows import view

KEY = Column("id", "bigint", null=False, doc="The key.")
REST = Column("rest", "string", doc="What the producer sends beyond.")
KINDS = pytest.mark.parametrize("kind", ["events", "changes"])


def parsed(kind: str, columns: tuple[Column, ...], *texts: str, unknown: UnknownFields | None = None) -> list[Any]:
    """Parse records, given as the JSON of their row, sent as events or as changes."""
    made: Parser
    if kind == "events":
        made = parser(json("bronze.events", topic="events", unknown_fields=unknown), columns)
        values: list[str | bytes | None] = [*texts]
    else:
        reads = debezium("bronze.changes", table="public.things", unknown_fields=unknown)
        made = parser(reads, columns, ("id",))
        source = '{"schema":"public","table":"things","lsn":7,"snapshot":"false"}'
        values = [f'{{"before":null,"after":{text},"source":{source},"op":"u"}}' for text in texts]
    return list(made.parse(bronze(values, keys=['{"id":1}'] * len(texts))).to_pylist())


@KINDS
def test_an_added_field_is_kept_out_and_told(kind: str) -> None:
    """Unless said otherwise it stays in bronze; its name is known."""
    (row,) = parsed(kind, (KEY,), '{"id":1,"new":"x"}', unknown=ignore())

    assert (row["_kind"], row["id"], row["_strays"]) == ("row", 1, '["new"]')


@KINDS
def test_an_added_field_is_refused_where_that_is_declared(kind: str) -> None:
    """The record is set aside; the field's name is known all the same."""
    (row,) = parsed(kind, (KEY,), '{"id":1,"new":"x"}', unknown=refuse())

    assert (row["_kind"], row["_reason"], row["_strays"]) == ("refused", "undeclared field", '["new"]')


@KINDS
@pytest.mark.parametrize(
    "number", ["1.50", "-0", "-0.0", "1e5", "1E+5", "0.10", "12345678901234567890123", "1.7976931348623157e999", "3"]
)
def test_kept_numbers_stay_as_they_were_written(kind: str, number: str) -> None:
    """No digit is lost and none is added, at any depth."""
    text = f'{{"id":1,"b":{number},"a":[{{"c":{number}}},null,true],"rest":"mine"}}'

    (row,) = parsed(kind, (KEY, REST), text, unknown=keep("rest"))

    assert row["rest"] == f'{{"b":{number},"a":[{{"c":{number}}},null,true],"rest":"mine"}}'


@KINDS
def test_without_undeclared_fields_there_is_no_rest(kind: str) -> None:
    """Null, not an empty object."""
    (row,) = parsed(kind, (KEY, REST), '{"id":1}', unknown=keep("rest"))

    assert (row["_kind"], row["rest"], row["_strays"]) == ("row", None, None)


def test_the_rest_of_every_document_reads_back_as_it_was() -> None:
    """Texts of all kinds, from the corpus: quotes, escapes, NUL, characters beyond 16 bits."""
    good = [one for one in samples() if one.row is not None and one.value is not None]
    assert len(good) > 50
    for one in good:
        assert one.value is not None
        document = js.loads(one.value)

        rest = rest_of(one.value, tuple(document))

        assert js.loads(rest) == document
        assert list(js.loads(rest)) == list(document)


@KINDS
def test_a_dropped_field_is_null_where_that_may_be(kind: str) -> None:
    """Where it may not, the record is refused with the column's name."""
    columns = KEY, Column("a", "string", doc="May be null."), Column("b", "string", null=False, doc="May not.")

    first, second = parsed(kind, columns, '{"id":1,"b":"x"}', '{"id":1,"a":"x"}')

    assert (first["_kind"], first["a"], first["b"]) == ("row", None, "x")
    assert (second["_kind"], second["_reason"]) == ("refused", "b: missing")


@KINDS
def test_a_wider_type_is_judged_by_its_values(kind: str) -> None:
    """A value that the declared type holds is taken, another one refused: nothing is rounded or cut."""
    columns = KEY, Column("n", "int", doc="A count."), Column("d", "decimal(6,2)", doc="Money.")

    rows = parsed(kind, columns, '{"id":1,"n":7,"d":"1.5"}', '{"id":1,"n":2147483648}', '{"id":1,"d":"1.234"}')

    assert (rows[0]["n"], rows[0]["d"]) == (7, Decimal("1.50"))
    assert [row["_reason"] for row in rows[1:]] == ["n: out of range", "d: more digits than declared"]


@KINDS
def test_a_narrower_type_fits(kind: str) -> None:
    """Everything that the source can send now, it could send before."""
    columns = KEY, Column("n", "bigint", doc="A count."), Column("d", "decimal(12,4)", doc="Money.")

    (row,) = parsed(kind, columns, '{"id":1,"n":7,"d":"1.5"}')

    assert (row["n"], row["d"]) == (7, Decimal("1.5000"))


@KINDS
def test_a_renamed_field_is_read_by_either_name(kind: str) -> None:
    """Records from before the renaming too, as a replay needs them; the present name counts where both are there."""
    columns = KEY, Column("mail", "string", null=False, previously="email", doc="An address.")

    rows = parsed(kind, columns, '{"id":1,"email":"old"}', '{"id":1,"mail":"new"}', '{"id":1,"mail":"n","email":"o"}')

    assert [row["mail"] for row in rows] == ["old", "new", "n"]
    assert [row["_strays"] for row in rows] == [None, None, '["email"]']


def test_a_rule_does_not_judge_what_a_row_leaves_out() -> None:
    """The value was judged when it was sent; the columns that the row carries are judged."""
    rules = tuple(
        Rule(name=f"{column} not null", critical=True, check=Null(column=column, wanted=False)) for column in ("a", "b")
    )
    columns = KEY, Column("a", "string", doc="Large."), Column("b", "string", doc="Small.")
    reads = debezium("bronze.changes", table="public.things")
    made = parser(reads, columns, ("id",), partial=True, rules=rules)
    source = {"schema": "public", "table": "things", "lsn": 7, "snapshot": "false"}
    rows = [{"id": 1, "a": "__debezium_unavailable_value", "b": b} for b in ("x", None)] + [{"id": 1, "b": "x"}]

    found = made.parse(bronze([js.dumps({"after": row, "source": source, "op": "u"}) for row in rows])).to_pylist()

    assert [row["_reason"] for row in found] == [None, "rule: b not null", "rule: a not null"]
    assert found[0]["_sent"] == '{"a": ""}'


def test_a_deletion_is_read_by_the_keys_older_name() -> None:
    """The Kafka key was renamed with the column."""
    columns = (Column("id", "bigint", null=False, previously="number", doc="The key."),)
    made = parser(debezium("bronze.changes", table="public.things"), columns, ("id",))
    source = {"schema": "public", "table": "things", "lsn": 7, "snapshot": "false"}

    rows = made.parse(bronze([js.dumps({"after": None, "source": source, "op": "d"})], keys=['{"number":5}']))

    assert [(row["_kind"], row["id"]) for row in rows.to_pylist()] == [("delete", 5)]


def test_undeclared_fields_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """By name, never by value; what is no plain name could be a value and is not shown; the list has an end."""
    made = parser(json("bronze.events", topic="events"), (KEY,))
    first = made.parse(bronze(['{"id":1,"new":"x"}', '{"id":1,"new":2,"ann@example.org":1}']))
    many = made.parse(bronze([js.dumps({"id": 1} | {f"f{number}": 1 for number in range(60)})]))

    with caplog.at_level(logging.WARNING, "deltaworks.strays"):
        known = tell("silver.events", (), first)
        again = tell("silver.events", known, first)
        full = tell("silver.events", again, many)

    assert known == again == ("(not a name)", "new")
    assert (len(full), full[-1]) == (51, "(more)")
    assert caplog.messages[0] == "silver.events: undeclared fields seen: (not a name), new"
    assert len(caplog.messages) == 2


def test_undeclared_fields_whose_names_may_be_somebodys_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """More of them in a batch than ever before are told; however many names there are, the log has an end."""
    made = parser(json("bronze.events", topic="events"), (KEY,))
    one, two = (made.parse(bronze([text])) for text in ('{"id":1,"ann":1}', '{"id":1,"ann":1,"bob":"x"}'))
    many = made.parse(bronze([js.dumps({"id": 1, f"f{number}": 1}) for number in range(60)]))
    none = made.parse(bronze(['{"id":1}']))

    with caplog.at_level(logging.WARNING, "deltaworks.strays"):
        known = [count("silver.events", None, none)]
        for batch in (one, two, one, many, many):
            known.append(count("silver.events", known[-1], batch))

    assert known == [None, 1, 2, 2, 51, 51]
    told = [message.split(";")[0] for message in caplog.messages]
    assert told == [f"silver.events: undeclared fields seen: {number} in a batch" for number in (1, 2, "more than 50")]


@pytest.mark.parametrize("unknown", [None, "ignore()", "refuse()", 'keep("referrer")', "ignore(named=True)"])
def test_names_of_undeclared_fields_are_told_where_that_is_declared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, unknown: str | None
) -> None:
    """Else they come into no log and no commit, those of refused records neither."""
    project = Shop(tmp_path / "project").without_gold()
    declaration = project.folder / "tables/silver/page_views/table.py"
    text = declaration.read_text()
    if unknown is not None:
        text = text.replace('topic="page_views")', f'topic="page_views", unknown_fields={unknown})')
        text = text.replace(", json\n", f", json, {unknown.split('(')[0]}\n")
        assert unknown in text
    declaration.write_text(text)
    owner, log = ArrowOwner(project.settings(tmp_path / "data"), "web"), Log()
    known = js.loads(view(1).value or b"")
    del known["referrer"]  # where they are kept
    for more in ({"zoe_1": "x"}, {"bob_2": "x", "page": 7}):
        log.send([replace(view(1), value=js.dumps(known | more).encode())])

    with caplog.at_level(logging.DEBUG):
        owner.take(log.batch())

    entry = owner.flow.inputs["silver.page_views"].table.entry
    assert entry.counts.refused == (2 if unknown == "refuse()" else 1)
    told = (entry.position.strays, entry.position.strays_most)
    named = unknown == "ignore(named=True)"
    assert told == ((("bob_2", "zoe_1"), None) if named else ((), 2))
    commits = (path.read_text().splitlines() for path in (tmp_path / "data/lake").rglob("_delta_log/*.json"))
    books = [line for lines in commits for line in lines if "commitInfo" in line]  # a column's bounds are its own
    assert len(books) > 5
    assert any("zoe_1" in text or "bob_2" in text for text in [*books, caplog.text]) == named
