"""A function of DataFrames planned once: a batch is a change of its inputs' rows, and no analysis, plan, job or task.

Each input is one partition whose rows are held in a Java array of one element. A batch puts its rows there as Arrow,
and the plan's one partition is computed on the calling thread. What only picks columns of an input is done by Arrow.
"""

import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from deltaworks.engine.spark.internals import Internals, PassedFile, TooMuchResultError, execution_of, kinds_of
from deltaworks.engine.spark.picked import picked
from deltaworks.engine.spark.pushed_keys import PushedKeys, pushed_keys
from deltaworks.engine.spark.refusals import NotDirectError, one_partition, refuse_unstable

Function = Callable[[Mapping[str, DataFrame]], DataFrame]
PLANNING = {
    # Rows stand beside the plan, as an RDD, not in it.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    # What would keep its first rows is not planned.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.exchange.reuse": "false",
    # Made and compiled code pays from some hundred thousand rows on.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Exchanges are taken out of the plan: one partition is what is left.
    "spark.sql.shuffle.partitions": "1",
    # Where each column was made is not asked: errors are told by the ordinary way.
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # How much a result is can only be asked between its batches.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
}
"""Settings of the session that plans, each with its reason."""
ROWS_MAX = 200_000
"""More rows than this a plan does not give: they pass through this process's memory."""
HELD_BYTES_MAX = 2**16
"""Larger rows are let go after their batch, small ones when the next come: that is one question less to the JVM."""
_LENGTH = struct.Struct(">i")


def planning_session(spark: SparkSession) -> SparkSession:
    """A session beside this one, with the settings that it was opened with but for those that kept plans need."""
    session = spark.newSession()
    for name, value in PLANNING.items():
        session.conf.set(name, value)
    return session


class DirectPlan:
    """A function from rows to rows. Several threads may use several plans; of one plan, one at a time does."""

    def __init__(
        self, session: SparkSession, internals: Internals, function: Function, inputs: Mapping[str, pa.Schema]
    ) -> None:
        """Plan `function` over inputs of these Arrow schemas, in a planning session.

        Raises NotDirectError where it can only be computed in Spark's ordinary way, and what `function` raises.
        """
        self._spark = internals
        self._lock = threading.Lock()
        self._file = PassedFile()
        self._cells: dict[str, Any] = {}
        self._leaves: dict[int, str] = {}
        """Inputs by their RDD's number."""
        self._schemas: dict[str, pa.Schema] = {}
        with internals.active(session):
            frames = {name: self._input(session, name, schema) for name, schema in inputs.items()}
            made = function(frames)
            self.schema = _arrow(made.schema)
            """What it gives, as Spark's own toArrow does."""
            self._made, self._frames, self._session = made, frames, session
            kinds = kinds_of(made)
            self.picked = picked(made, kinds, self._leaves, self._schemas, internals)
            """What it only picks; None where it does more."""
            if self.picked is None:
                refuse_unstable(kinds)
                self._plan()
            else:
                self._file.close()  # nothing passes through it

    def _plan(self) -> None:
        internals, executed = self._spark, execution_of(self._made).executedPlan()
        # one row more than is taken: that there are more is all that is asked of them
        plan = internals.new_limit(ROWS_MAX + 1, one_partition(executed, self._leaves, internals))
        self._rdd = self._made._jdf.toArrowBatchRdd(plan)  # noqa: SLF001  # there is no public name for it
        partitions = self._rdd.partitions()
        if len(partitions) != 1:
            raise NotDirectError(f"it has {len(partitions)} partitions")
        self._partition = partitions[0]
        self._settings = internals.task_settings(self._session)

    def __call__(self, rows: Mapping[str, pa.Table]) -> pa.Table:
        """The result over these rows of every input.

        Raises what they raise, as a DataFrame does, and TooMuchResultError.
        """
        if self.picked is not None:
            name, columns = self.picked
            return rows[name].select(columns).rename_columns(self.schema.names).cast(self.schema)
        with self._lock:
            for name, cell in self._cells.items():
                self._spark.put(cell, self._one(name, rows[name]), self._file)
            try:
                self._spark.run(self._rdd, self._partition, self._settings, self._file)
                result = self._result()
            finally:
                self._file.empty()
                for name, cell in self._cells.items():
                    if rows[name].nbytes > HELD_BYTES_MAX:
                        cell[0] = None
        if result.num_rows > ROWS_MAX:
            raise TooMuchResultError
        return result

    def pushed_keys(self, keys: pa.Schema) -> PushedKeys:
        """What of the inputs' rows decides these columns of the result: asked of Spark anew, which takes a while.

        Rows may be computed meanwhile.
        """
        with self._spark.active(self._session):
            values = {one.name: self._frame(self._session, pa.schema([one])) for one in keys}
            return pushed_keys(self._made, self._frames, self._schemas, keys, values, self._spark)

    def close(self) -> None:
        """Let its file go; it is not used any more."""
        with self._lock:
            self._file.close()

    def _input(self, session: SparkSession, name: str, schema: pa.Schema) -> DataFrame:
        """A frame of one partition, whose rows are what the input's cell holds.

        That is nothing while it is planned: a function that asks its rows raises then, and takes the ordinary way.
        """
        made = self._made_input(session, schema)
        if (partitions := made.hold()) != 1:
            raise NotDirectError(f"input {name} has {partitions} partitions")
        self._schemas[name], self._cells[name] = _arrow(from_arrow_schema(schema)), made.cell()
        self._leaves[made.number()] = name
        return DataFrame(made.frame(), session)

    def _frame(self, session: SparkSession, schema: pa.Schema) -> DataFrame:
        """A frame without rows."""
        return DataFrame(self._made_input(session, schema).frame(), session)

    def _made_input(self, session: SparkSession, schema: pa.Schema) -> JavaObject:
        types = from_arrow_schema(schema)
        return self._spark.input(session, types, _empty(_arrow(types)))

    def _one(self, name: str, rows: pa.Table) -> pa.RecordBatch:
        """Rows as one record batch, in the types that the plan reads."""
        schema = self._schemas[name]
        batches = rows.select(schema.names).cast(schema).combine_chunks().to_batches()
        return batches[0] if batches else _empty(schema)

    def _result(self) -> pa.Table:
        """Batches, each behind its length, as Spark writes them to Python."""
        raw, at, batches = self._file.read(), 0, []
        while at < len(raw):
            (size,) = _LENGTH.unpack_from(raw, at)
            at += _LENGTH.size
            batches.append(pa.ipc.read_record_batch(pa.py_buffer(raw[at : at + size]), self.schema))
            at += size
        return pa.Table.from_batches(batches, self.schema)


def _arrow(types: Any) -> pa.Schema:
    return to_arrow_schema(
        types, error_on_duplicated_field_names_in_struct=True, timezone="UTC", prefers_large_types=False
    )


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
