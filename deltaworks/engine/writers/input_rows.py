"""Rows of a view's inputs that it leaves out: one that raises beside whatever it meets would cost every key.

A row is named by what tells it apart in its table: its key, or the coordinates of an event, which has none.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from deltaworks.engine.collect import collected
from deltaworks.engine.commit import Rows, pruning
from deltaworks.engine.entry import Unfit
from deltaworks.engine.feed import CHANGE
from deltaworks.engine.halves import TooManyError, Try
from deltaworks.engine.poison import is_of_rows
from deltaworks.engine.slices import present
from deltaworks.engine.writers.computing import Computing, declared_columns
from deltaworks.engine.writers.fitting import Fitting, chosen, evaluate, keys_as_places, places_as_keys
from deltaworks.engine.writers.replacing import only, semi
from deltaworks.engine.writers.writer import EVENT, Input, frame
from deltaworks.errors import UnfitError

Cut = Callable[[DataFrame], DataFrame]
"""What of a result a batch is about."""


class InputRows:
    """What one view leaves out of its inputs; its position has it, beside the keys that are left out of the view."""

    def __init__(self, name: str, sources: Sequence[Input], computing: Computing, fitting: Fitting) -> None:
        """Look at what the position of the view of this name says."""
        self.name, self.computing, self.fitting = name, computing, fitting
        self.sources = {source.table.name: source for source in sources}

    @property
    def out(self) -> list[Unfit]:
        """The rows that are left out with the batch in hand."""
        return [one for one in self.fitting.progress.unfit if one.of != self.name]

    @property
    def events(self) -> bool:
        """Whether events are among them: what views see of an event does not tell it apart."""
        return any(EVENT in self.sources[one.of].placed_by for one in self.out)

    def without(self, rows: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Rows of the inputs without those that are left out."""
        return {name: _but(one, self._keys(name, self.out)) for name, one in rows.items()}

    def whole(self, spark: SparkSession, bytes_max: int, *, out: Iterable[Unfit] = ()) -> dict[str, DataFrame]:
        """All rows of the inputs without those that are left out, and these; with what tells them apart."""
        every = [*self.out, *out]
        return {name: self._whole(spark, name, bytes_max, self._keys(name, every)) for name in self.sources}

    def told_of(self, name: str, changes: Rows) -> list[Unfit]:
        """Those of an input that are left out, and that these changes of it may tell something of."""
        mine = [one for one in self.out if one.of == name]
        if not mine or isinstance(changes, DataFrame):
            return mine
        if EVENT in self.sources[name].placed_by:  # an event changes by going only
            return [] if pc.all(pc.equal(changes[CHANGE], "insert")).as_py() else mine
        there = semi(changes, self._keys(name, mine))
        return chosen(mine, of=name, places=set(self._places(name, there)))

    def there(self, wanted: Collection[Unfit]) -> dict[str, pa.Table]:
        """These rows by input, as far as they are there."""
        keys = {name: self._keys(name, wanted) for name in self.sources}
        return {name: self._those(name, one) for name, one in keys.items() if one.num_rows}

    def still(self, spark: SparkSession, bytes_max: int, wanted: Collection[Unfit]) -> list[Unfit]:
        """Those of these rows, left out before, that are there and raise again, whatever key asks for them."""
        there = {name: rows for name, rows in self.there(wanted).items() if rows.num_rows}
        if not there:
            return []
        found, whole = list[Unfit](), self.whole(spark, bytes_max, out=wanted)
        for name, rows in there.items():
            places = self._places(name, rows)

            def attempt(low: int, high: int, name: str = name, rows: pa.Table = rows) -> None:
                self._evaluate(spark, {**whole, name: frame(spark, rows.slice(low, high - low))})

            known = chosen(wanted, of=name, places=set(places))
            found += self.fitting.named([name] * len(places), places, attempt, known=known)
        return found

    def raising(self, spark: SparkSession, bytes_max: int, cut: Cut) -> list[Unfit]:
        """The rows of one input that raise alone beside all rows of the others, where not all of that input do."""
        whole = self.whole(spark, bytes_max)
        for name, source in self.sources.items():
            keys = collected(whole[name].select(*source.placed_by).distinct())
            if keys is None:  # more than the driver can hold
                continue
            keys = keys.sort_by([(column, "ascending") for column in keys.column_names])

            def attempt(low: int, high: int, name: str = name, keys: pa.Table = keys) -> None:
                part = only(spark, whole[name], keys.slice(low, high - low))
                assert isinstance(part, DataFrame), "of a DataFrame comes one"
                self._evaluate(spark, {**whole, name: part}, cut)

            if _some_do_not(keys.num_rows, attempt):
                places = self._places(name, keys)
                with suppress(TooManyError, UnfitError):
                    if found := self.fitting.named([name] * len(places), places, attempt):
                        return found
        return []

    def _evaluate(self, spark: SparkSession, rows: Mapping[str, DataFrame], cut: Cut | None = None) -> None:
        computed = self.computing.ordinary(spark, rows)
        evaluate(computed if cut is None else cut(computed))

    def _whole(self, spark: SparkSession, name: str, bytes_max: int, out: pa.Table) -> DataFrame:
        rows = present(spark, self.sources[name].table, bytes_max, self._columns(name))
        if isinstance(rows, DataFrame) and out.num_rows:
            rows = only(spark, rows, out, how="left_anti")
        return frame(spark, _but(rows, out) if isinstance(rows, pa.Table) else rows)

    def _those(self, name: str, keys: pa.Table) -> pa.Table:
        return semi(self.sources[name].table.read(self._columns(name), where=pruning(keys, keys.column_names)), keys)

    def _columns(self, name: str) -> list[str]:
        source = self.sources[name]
        return list(dict.fromkeys([*declared_columns(source.table), *source.placed_by]))

    def _keys(self, name: str, unfit: Iterable[Unfit]) -> pa.Table:
        """What tells these rows of an input apart."""
        source = self.sources[name]
        places = [one.place for one in unfit if one.of == name]
        schema = pa.schema([source.table.schema.field(column) for column in source.placed_by])
        return pa.table([places], schema=schema) if EVENT in source.placed_by else places_as_keys(places, schema)

    def _places(self, name: str, rows: pa.Table) -> list[str]:
        keys = rows.select(list(self.sources[name].placed_by))
        return keys[EVENT].to_pylist() if EVENT in keys.column_names else keys_as_places(keys)


def _some_do_not(many: int, attempt: Try) -> bool:
    """Whether one of a few of so many rows, far from each other, does not raise alone."""
    for at in sorted({0, many // 2, many - 1} if many else ()):
        try:
            attempt(at, at + 1)
        except Exception as error:
            if not is_of_rows(error):
                raise
        else:
            return True
    return False


def _but(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Rows without those of these keys; most are told by one column."""
    if not keys.num_rows:
        return rows
    first = keys.column_names[0]
    maybe = pc.is_in(rows[first], value_set=keys[first].combine_chunks())
    return pa.concat_tables([rows.filter(pc.invert(maybe)), semi(rows.filter(maybe), keys, others=True)])
