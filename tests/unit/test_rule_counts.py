"""Rows of computed tables that break rules are counted as the newest version has them, whoever wrote its files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from deltaworks.engine.entry import Counts, Entry
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.merge import Clause, Merge
from deltaworks.engine.partition import Partition
from deltaworks.engine.rule_counts import RuleCounts
from deltaworks.quality.compiling import compiled
from deltaworks.quality.judging import broken
from deltaworks.quality.rule import Null, Range, Rule
from deltaworks.suites import Expectation, Suite
from tests import rule_corpus
from tests.chance import seeded
from tests.flows import BY_ARROW

ALL = {name: f"s.{name}" for name in rule_corpus.SCHEMA.names}
UPSERT = Merge(
    keys=("id",),
    clauses=(Clause(on="matched", act="update", set=ALL), Clause(on="not matched", act="insert", set=ALL)),
)
BIG = 2**40
NOT_NULL = Rule(name="not null", critical=True, check=Null(column="big", wanted=False))
LOW = Rule(name="low", critical=False, check=Range(column="big", ranges=((None, 10),)))
VALUES = pa.schema([("id", pa.int64()), ("big", pa.int64())])


def owned(folder: Path, schema: pa.Schema = VALUES, partition: Partition | None = None) -> OwnedTable:
    """An empty table."""
    entry = Entry(kind="create", app="a", epoch=1)
    return OwnedTable(name="gold.things", path=folder / "things", schema=schema, entry=entry, partition=partition)


def put(table: OwnedTable, rows: pa.Table, how: Merge | None = None) -> None:
    """Write a batch."""
    entry = table.entry.follow("batch", counts=Counts(read=rows.num_rows, taken=rows.num_rows))
    BY_ARROW.commit(table, rows, entry, how=how)


def numbers(*pairs: tuple[int, int | None]) -> pa.Table:
    """Rows of two columns."""
    return pa.table({"id": [one for one, _ in pairs], "big": [other for _, other in pairs]}, schema=VALUES)


def rules_of_all_kinds(chance: Random) -> list[Rule]:
    """Some of each kind that rows can be judged by."""
    wanted = [Expectation(type=kind, kwargs=kwargs, severity="critical", meta={}, line=1)
              for kind, kwargs in rule_corpus.expectations(chance, 1)]  # fmt: skip
    chance.shuffle(wanted)
    suite = Suite(name="gold.things", expectations=tuple(wanted[:60]), waived=None)
    return [one.rule for one in compiled(suite, rule_corpus.COLUMNS) if one.rule is not None]


def by_reading(table: OwnedTable, rules: list[Rule]) -> dict[int, int]:
    """How many rows break each rule, of those that are broken, from all rows there are."""
    rows = table.read().combine_chunks().to_batches()
    counts = {at: sum(pc.sum(pc.fill_null(broken(rule.check, one), False)).as_py() or 0 for one in rows)
              for at, rule in enumerate(rules)}  # fmt: skip
    return {at: count for at, count in counts.items() if count}


@pytest.mark.parametrize("parts", [False, True])
def test_counts_are_those_of_the_rows_that_are_there(tmp_path: Path, parts: bool) -> None:
    """After each append, merge, deletion, compaction and replacement, by rules of every kind over hostile values."""
    chance = seeded()
    partition = Partition(name="_day_of_seen", column="seen", kind=pa.date32()) if parts else None
    table, rules = owned(tmp_path, rule_corpus.SCHEMA, partition), rules_of_all_kinds(chance)
    counts = RuleCounts(table, rules)
    acts = ["append", "merge", "merge", "delete", "compact", "reopen"]
    chance.shuffle(acts)
    for act in ("append", *acts, "merge"):
        rows = rule_corpus.rows(chance, chance.choice((40, 60, 100)))
        if act == "append":
            put(table, rows)
        elif act == "merge":
            put(table, rows, UPSERT)
        elif act == "delete":
            BY_ARROW.delete(table, f"small > {chance.randint(-5, 50)}", table.entry.follow("redo"))
        elif act == "compact":
            BY_ARROW.rewrite(table, table.entry.follow("compact"), size_max=BIG)
        else:
            table.reopen()
        counts.look()

        told = {rules.index(one.rule): one.rows for one in counts.broken()}
        assert told == by_reading(table, rules), act
        assert len(told) > 10, "of sixty rules"


def once() -> Callable[[], bool]:
    """Time for a look and no more."""
    times = iter([True])
    return lambda: next(times, False)


def test_what_there_is_no_time_for_is_read_in_the_next_look_the_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of rows at least; a file counts once it was read whole."""
    monkeypatch.setattr("deltaworks.engine.rule_counts.ROWS_AT_ONCE", 2)
    table = owned(tmp_path)
    put(table, numbers((1, None), (2, None), (3, None)))
    put(table, numbers((4, 99)))
    counts = RuleCounts(table, [NOT_NULL, LOW])
    seen = []
    for _ in range(5):
        counts.look(once())
        seen.append((counts.uncounted, [(one.rule.name, one.rows) for one in counts.broken()]))

    low, both = [("low", 1)], [("not null", 3), ("low", 1)]
    assert seen == [(2, []), (1, low), (1, low), (1, low), (0, both)]


def test_a_file_that_cannot_be_read_is_not_counted_as_a_part_of_it(tmp_path: Path) -> None:
    """It is read anew the next time."""
    table = owned(tmp_path)
    put(table, numbers((1, None), (2, None)))
    counts = RuleCounts(table, [NOT_NULL])
    (file,) = table.path.glob("*.parquet")
    aside = file.rename(tmp_path / "aside")
    with pytest.raises(FileNotFoundError):
        counts.look()
    lacking = counts.uncounted, counts.broken()
    aside.rename(file)
    counts.look()

    assert lacking == (1, [])
    assert [one.rows for one in counts.broken()] == [2]


def test_a_file_is_read_once_and_nothing_is_read_without_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn costs by what is new in it; a table without rules, or without news, costs nothing."""
    table = owned(tmp_path)
    put(table, numbers((1, None)))
    counts, none = RuleCounts(table, [NOT_NULL]), RuleCounts(table, [])
    counts.look()
    read: list[str] = []
    batches = RuleCounts._batches

    def reading(own: RuleCounts, path: str) -> Iterator[pa.RecordBatch]:
        read.append(path)
        return batches(own, path)

    monkeypatch.setattr(RuleCounts, "_batches", reading)

    counts.look()
    put(table, numbers((2, 5), (3, None)))
    counts.look()
    counts.look()
    none.look()

    assert len(read) == 1
    assert [one.rows for one in counts.broken()] == [2]


def test_words_say_how_many_and_name_no_value(tmp_path: Path) -> None:
    """With its consequence."""
    table = owned(tmp_path)
    put(table, numbers((1, 99), (2, 98)))
    put(table, numbers((3, None)))
    counts = RuleCounts(table, [LOW, NOT_NULL], suspending={NOT_NULL})

    counts.look()

    assert [(str(one), one.suspends) for one in counts.broken()] == [
        ("2 rows break low", False), ("1 row breaks not null", True),
    ]  # fmt: skip


def test_a_table_made_anew_in_its_place_is_counted_anew(tmp_path: Path) -> None:
    """Its files are others, though its version may be the same."""
    table = owned(tmp_path)
    put(table, numbers((1, None)))
    counts = RuleCounts(table, [NOT_NULL])
    counts.look()
    assert len(deltalake.DeltaTable(str(table.path)).file_uris()) == 1

    table.path.rename(tmp_path / "old")
    again = owned(tmp_path)
    put(again, numbers((1, 5)))
    table.reopen()
    counts.look()

    assert counts.broken() == []
