"""Row rules over tables that are computed: a row that breaks one stays, as the table must equal its inputs.

Such rows are counted by file: what the newest version has of them is the sum over its files. So each file is read once,
when it is new, whoever wrote it; nothing is counted twice, and nothing that has gone.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from deltaworks import suites
from deltaworks.catalog import Declared
from deltaworks.engine.datasets import ds
from deltaworks.engine.lake import OwnedTable
from deltaworks.quality.judging import broken, columns_of
from deltaworks.quality.planning import Planned, planned
from deltaworks.quality.rule import Rule

ROWS_AT_ONCE = 2**14
"""Between so many rows it is asked whether there is time: some rules look at one row after the other."""
Counts = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A rule that rows of a table's newest version break; `rows`: how many do, `suspends`: what is to follow."""

    rule: Rule
    rows: int
    suspends: bool

    def __str__(self) -> str:
        """In words, without a value of a row."""
        return f"{self.rows} row{'s break' if self.rows > 1 else ' breaks'} {self.rule.name}"


class RuleCounts:
    """How many rows of a table break each of these rules. Not thread-safe, as the table is not."""

    def __init__(self, table: OwnedTable, rules: Sequence[Rule], *, suspending: Collection[Rule] = ()) -> None:
        """Know no file yet; where there is no rule, none is ever read. `suspending`: those that suspend the table."""
        self._table, self._rules, self.suspending = table, tuple(rules), frozenset(suspending)
        names = dict.fromkeys(name for rule in rules for name in columns_of(rule.check))
        self._schema = pa.schema([table.schema.field(name) for name in names])
        self._files: dict[str, Counts] = {}
        self._sums = [0] * len(self._rules)
        self._at: object = None
        self._waiting: list[str] = []
        """Files to be read, the next one last."""
        self._begun: Counting | None = None

    @property
    def uncounted(self) -> int:
        """Files of the version that was looked at last which were not read whole yet."""
        return len(self._waiting)

    def look(self, has_time: Callable[[], bool] = lambda: True) -> None:
        """Read files that are new, the newest first, as long as there is time; what is begun goes on the next time."""
        if not self._rules or self._table.outdated is not None:
            return
        at = (self._table.made, self._table.delta.version())
        if at != self._at:
            self._compare()
            self._at = at
        while self._waiting and has_time():
            path = self._waiting[-1]
            if self._begun is None or self._begun.path != path:
                self._begun = Counting(path, self._batches(path), (0,) * len(self._rules))
            try:
                is_through = self._begun.go_on(self._rules, has_time)
            except Exception:
                self._begun = None  # what came of it is no count
                raise
            if is_through:
                self._files[path] = self._begun.counts
                self._sums = [known + new for known, new in zip(self._sums, self._begun.counts, strict=True)]
                self._begun = None
                self._waiting.pop()

    def broken(self) -> list[Broken]:
        """The rules that are broken, with the rows of the files that were read."""
        return [
            Broken(rule=rule, rows=rows, suspends=rule in self.suspending)
            for rule, rows in zip(self._rules, self._sums, strict=True)
            if rows
        ]

    def _compare(self) -> None:
        """Forget the files that have gone, and find those that are new."""
        files = self._table.adds()
        there = dict(zip(files["path"].to_pylist(), files["modification_time"].to_pylist(), strict=True))
        for path in self._files.keys() - there:
            gone = self._files.pop(path)
            self._sums = [known - less for known, less in zip(self._sums, gone, strict=True)]
        self._waiting = sorted(there.keys() - self._files, key=lambda path: (there[path], path))

    def _batches(self, path: str) -> Iterator[pa.RecordBatch]:
        # the hidden column of a table in parts is in no file, and no rule is about it
        dataset = ds.dataset(str(self._table.path / unquote(path)), schema=self._schema, format="parquet")
        yield from dataset.to_batches(batch_size=ROWS_AT_ONCE, fragment_readahead=1)


@dataclass
class Counting:
    """A file that is being read, and what was counted of it so far."""

    path: str
    batches: Iterator[pa.RecordBatch]
    counts: Counts

    def go_on(self, rules: Sequence[Rule], has_time: Callable[[], bool]) -> bool:
        """Read on, one batch at least; whether the file is through."""
        for batch in self.batches:
            found = (pc.sum(pc.fill_null(broken(rule.check, batch), False)).as_py() for rule in rules)  # null: no rows
            self.counts = tuple(known + (more or 0) for known, more in zip(self.counts, found, strict=True))
            if not has_time():
                return False
        return True


def plan_of(declared: Declared) -> list[Planned]:
    """What is judged of a table, by its suite as it is now; nothing where it has none."""
    if declared.suite is None:
        return []
    suite = suites.load(declared.suite, table=declared.name, columns=[column.name for column in declared.columns])
    later, parses, closes_days = declared.implied, declared.parses, declared.closes_days
    return list(planned(suite, declared.columns, later=later, parses=parses, closes_days=closes_days))


def rule_counts(table: OwnedTable, plan: Sequence[Planned]) -> RuleCounts:
    """Those of a table that is computed, by what is judged of it."""
    of_rows = [(one.compiled.rule, one.suspends) for one in plan if one.each_row and one.compiled.rule is not None]
    return RuleCounts(table, [rule for rule, _ in of_rows], suspending={rule for rule, suspends in of_rows if suspends})


def told_of(found: Sequence[Broken]) -> str:
    """What is broken, in words."""
    return "; ".join(map(str, found)) or "no row breaks a rule any more"
