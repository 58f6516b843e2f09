"""A table's transform over rows of its inputs, in whichever way and form they come."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from deltaworks.catalog import Declared
from deltaworks.engine.commit import Rows
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.phases import phase, went_ordinarily
from deltaworks.engine.schemas import spark_schema
from deltaworks.engine.session import suit
from deltaworks.engine.snapshot import UnknownError
from deltaworks.engine.spark.direct_plan import ROWS_MAX
from deltaworks.engine.spark.planned import BYTES_MAX, OFF, PLANS, Planned
from deltaworks.engine.spark.pushed_keys import Expression, with_expressions
from deltaworks.engine.spark.sessions import of_sessions, put_together
from deltaworks.engine.transforms import Function, by_short_name, digest_of, several
from deltaworks.engine.transforms import KeysFrom as KeysFromFunction
from deltaworks.engine.writers.writer import code_of, frame

IN_SPARK = "its rows are Spark's, not in memory"
"""Why rows that are not Arrow are computed in the ordinary way: they are too many, or a command asked for that."""

UNFIT = "a value does not fit the declared type"


class Computing:
    """Calls one function of a table's transform.py."""

    def __init__(
        self, declared: Declared, function: Function, inputs: Sequence[OwnedTable], gives: pa.Schema, *, direct: bool
    ) -> None:
        """Give these columns; what an input's columns of the engine hold is none of its business.

        `direct`: by a kept plan where it can be.
        """
        self._function = function
        self._gives = pa.schema([(one.name, one.type) for one in gives])
        """What may be null is asked later, and told with the table's name."""
        self.of_sessions: bool | None = None
        """Whether its result is sessions; None while it was not computed in the ordinary way."""
        self._names = {table.name: declared_columns(table) for table in inputs}
        schemas = {
            table.name: pa.schema([table.schema.field(name) for name in self._names[table.name]]) for table in inputs
        }
        self.planned = Planned(
            place=declared.name, code=_code(declared, function), inputs=schemas, function=self._call, enabled=direct
        )

    def __call__(self, spark: SparkSession, rows: Mapping[str, Rows]) -> Rows:
        """The result over rows of each input: as Arrow where a kept plan gives it, else as a DataFrame.

        Raises what the function raises.
        """
        small = {name: one for name, one in rows.items() if isinstance(one, pa.Table)}
        found = self.directly(spark, small) if len(small) == len(rows) else None
        return self.ordinary(spark, rows) if found is None else found

    def directly(self, spark: SparkSession, rows: Mapping[str, pa.Table]) -> pa.Table | None:
        """The result of a kept plan, in the types that the table declares; None where there is none.

        A transform may give another type. What that cannot hold is told by the ordinary way.
        """
        found = self.planned.compute(spark, rows)
        try:
            return None if found is None else found.cast(self._gives)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            went_ordinarily(UNFIT)
            return None

    def expressions(self, name: str, wanted: Mapping[str, Expression]) -> Callable[[SparkSession, pa.Table], pa.Table]:
        """Computes these over an input's rows, a column for each; raises UnknownError where a row raises."""
        names = ", ".join(wanted)
        planned = Planned(
            place=f"{self.planned.place} {names}",
            code=self.planned.code,
            inputs={name: self.planned.inputs[name]},
            function=lambda frames: with_expressions(frames[name], wanted),
            enabled=self.planned.enabled,
        )

        def compute(spark: SparkSession, rows: pa.Table) -> pa.Table:
            found = [planned.compute(spark, {name: piece}) for piece in pieces(rows)]
            known = [one for one in found if one is not None]
            if len(known) < len(found):
                raise UnknownError(names)
            return pa.concat_tables(known)

        return compute

    @phase("compute")
    def ordinary(self, spark: SparkSession, rows: Mapping[str, Rows], *, many_rows: bool | None = None) -> DataFrame:
        """The same by Spark's ordinary way."""
        went_ordinarily(IN_SPARK)  # unless it was told before why
        if many_rows is None:
            many_rows = any(not isinstance(one, pa.Table) or one.nbytes > BYTES_MAX for one in rows.values())
        suit(spark, many_rows=many_rows)
        made = self._call({name: frame(spark, one).select(*self._names[name]) for name, one in rows.items()})
        if self.of_sessions is None:
            self.of_sessions = of_sessions(made)
        return put_together(made) if self.of_sessions else made

    def _call(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        return self._function(**by_short_name(frames)).select(*self._gives.names)


def pieces(rows: pa.Table) -> list[pa.Table]:
    """Rows in parts that a kept plan takes at once."""
    if rows.num_rows <= 1 or (rows.num_rows <= ROWS_MAX and rows.nbytes <= BYTES_MAX):
        return [rows]
    half = rows.num_rows // 2
    return [*pieces(rows.slice(0, half)), *pieces(rows.slice(half))]


def _code(declared: Declared, function: Callable[..., object]) -> str:
    """Of the folder, and of what was loaded: somebody may have saved in between."""
    return f"{code_of(declared)} {digest_of(function)}"


class KeysFrom:
    """A view's `keys_from` for one input: the keys that rows of it touch."""

    _given: ClassVar[dict[tuple[str, str, str], int]] = {}
    """How many frames it gives, by view, code and input."""

    def __init__(self, declared: Declared, function: KeysFromFunction, table: OwnedTable, *, direct: bool) -> None:
        """Ask for the keys of rows of this table; `direct`: by kept plans where they can be."""
        self._declared, self._function, self._name, self._direct = declared, function, table.name, direct
        self._columns = declared_columns(table)
        self._schema = pa.schema([table.schema.field(name) for name in self._columns])
        self._code = _code(declared, function)

    @phase("compute")
    def __call__(self, spark: SparkSession, rows: Rows) -> list[Rows]:
        """What each of the frames that it gives holds for these rows; raises what the function raises."""
        if not isinstance(rows, pa.Table) or not self._direct:
            went_ordinarily(OFF if isinstance(rows, pa.Table) else IN_SPARK, part=f"keys_from {self._name}")
            return list(self._several({self._name: frame(spark, rows).select(*self._columns)}))
        found: list[Rows] = []
        for number in range(self._many(spark)):
            keys = self._planned(number).compute(spark, {self._name: rows})
            if keys is None:
                keys = self._several({self._name: frame(spark, rows).select(*self._columns)})[number]
            found.append(keys)
        return found

    def plan_ahead(self, spark: SparkSession) -> None:
        """Plan it beside the turn."""
        if self._direct:
            PLANS.begin(lambda: [self._planned(number).plan(spark) for number in range(self._many(spark))], spark)

    def _many(self, spark: SparkSession) -> int:
        if self._known not in self._given:
            self._planned(0).plan(spark)  # that calls it
        if self._known not in self._given:
            self._several({self._name: spark.createDataFrame([], spark_schema(self._schema))})
        return self._given[self._known]

    @property
    def _known(self) -> tuple[str, str, str]:
        return self._declared.name, self._code, self._name

    def _planned(self, number: int) -> Planned:
        return Planned(
            place=f"{self._declared.name} keys_from {self._name} {number}",
            code=self._code,
            inputs={self._name: self._schema},
            function=lambda frames: self._several(frames)[number],
        )

    def _several(self, frames: Mapping[str, DataFrame]) -> tuple[DataFrame, ...]:
        made = several(self._function(**by_short_name(frames)))
        self._given[self._known] = len(made)
        return made


def declared_columns(table: OwnedTable) -> list[str]:
    """The columns that transforms see: all but the engine's."""
    return [name for name in table.schema.names if not name.startswith("_")]
