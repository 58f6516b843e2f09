"""Names of Spark that are not public, for what no public one gives: a plan that is kept, computed on this thread.

`NAMES` lists all of them, for Spark 4.2.0, and a test asks the JVM which it still has: a
newer Spark that lacks one makes that test fail, and every transform take Spark's ordinary way.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaObject, JVMView
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import Column
from pyspark.sql.types import StructType

NAMES: Mapping[str, tuple[str, ...]] = {
    "org.apache.spark.SparkEnv": ("blockManager", "get", "memoryManager", "metricsSystem"),
    "org.apache.spark.TaskContext": ("setTaskContext", "unset"),
    "org.apache.spark.TaskContextImpl": ("markTaskCompleted",),
    "org.apache.spark.executor.TaskMetrics": (),
    "org.apache.spark.memory.TaskMemoryManager": ("cleanUpAllAllocatedMemory",),
    "org.apache.spark.rdd.ParallelCollectionPartition": ("values_$eq",),
    "org.apache.spark.rdd.RDD": ("compute", "id", "partitions"),
    "org.apache.spark.sql.api.python.PythonSQLUtils": ("readArrowStreamFromFile",),
    "org.apache.spark.sql.catalyst.expressions.Alias": ("child",),
    "org.apache.spark.sql.catalyst.expressions.EqualNullSafe": ("left", "right"),
    "org.apache.spark.sql.catalyst.expressions.EqualTo": ("left", "right"),
    "org.apache.spark.sql.catalyst.expressions.ExprId": ("id",),
    "org.apache.spark.sql.catalyst.expressions.AttributeReference": ("exprId", "name"),
    "org.apache.spark.sql.catalyst.expressions.Cast": ("dataType",),
    "org.apache.spark.sql.catalyst.expressions.Expression": ("children", "eval", "foldable"),
    "org.apache.spark.sql.catalyst.expressions.Literal": ("dataType", "value"),
    "org.apache.spark.sql.catalyst.expressions.NamedExpression": ("exprId",),
    "org.apache.spark.sql.catalyst.expressions.ScalarSubquery": ("plan",),
    "org.apache.spark.sql.catalyst.plans.logical.Aggregate": ("aggregateExpressions", "groupingExpressions"),
    "org.apache.spark.sql.catalyst.plans.logical.Expand": ("output", "projections"),
    "org.apache.spark.sql.catalyst.plans.logical.Filter": ("condition",),
    "org.apache.spark.sql.catalyst.plans.logical.Join": ("condition", "joinType"),
    "org.apache.spark.sql.catalyst.plans.QueryPlan": ("output",),
    "org.apache.spark.sql.catalyst.plans.logical.Project": ("child", "projectList"),
    "org.apache.spark.sql.catalyst.trees.TreeNode": (
        *("children", "productIterator"),
        *("toJSON", "treeString", "withNewChildren"),
    ),
    "org.apache.spark.sql.classic.Dataset": ("queryExecution", "toArrowBatchRdd"),
    "org.apache.spark.sql.classic.ExpressionUtils": ("column",),
    "org.apache.spark.sql.classic.SparkSession": (
        *("clearActiveSession", "getActiveSession", "setActiveSession"),
        "parseDataType",
    ),
    "org.apache.spark.sql.execution.CoalesceExec": (),
    "org.apache.spark.sql.execution.LocalLimitExec": (),
    "org.apache.spark.sql.execution.LogicalRDD": ("output", "rdd"),
    "org.apache.spark.sql.execution.QueryExecution": ("analyzed", "executedPlan", "optimizedPlan"),
    "org.apache.spark.sql.execution.RDDScanExec": ("rdd",),
    "org.apache.spark.sql.execution.SparkPlan": ("children", "subqueries"),
    "org.apache.spark.sql.execution.UnionExec": (),
    "org.apache.spark.sql.execution.arrow.ArrowConverters": ("toDataFrame",),
    "org.apache.spark.sql.execution.exchange.ShuffleExchangeExec": (),
    "org.apache.spark.sql.ml.InternalFunctionRegistration$": (),
    "org.apache.spark.storage.BlockManager": ("registerTask", "releaseAllLocksForTask"),
    "org.codehaus.janino.SimpleCompiler": ("cook", "getClassLoader", "setParentClassLoader"),
}
"""By class, the methods that are called; those of Scala's objects stand as static ones there too."""
_FIRST_ATTEMPT = 1 << 40
"""Tasks register locks by their number: never one that Spark gives."""
_attempts = count(_FIRST_ATTEMPT)
_TASK, _NODES, _INPUT = (Path(__file__).with_name(f"{name}.java") for name in ("DirectTask", "PlanNodes", "PlanInput"))
_compiling = threading.Lock()
_SENT_BYTES_MAX = 2**18
"""Larger rows go in by file: py4j writes bytes as text."""


RESULT_BYTES_MAX = 32 * 2**20
"""More a batch does not give: it passes through this process's memory."""


class TooMuchResultError(Exception):
    """What a batch gives is too much for this way."""


def scala_object(jvm: JVMView, name: str) -> JavaObject:
    """The Scala object of that name."""
    found = jvm
    for part in f"{name}$".split("."):
        found = getattr(found, part)
    return getattr(found, "MODULE$")


def listed(many: JavaObject) -> list[Any]:
    """A Scala sequence as Java objects.

    By number: at the end of an iterator Java raises, and PySpark asks it a hundred questions about that.
    """
    return [many.apply(at) for at in range(many.size())]


def execution_of(frame: DataFrame) -> JavaObject:
    """Spark's execution of a frame, which has its plans: analysed, optimised, executed."""
    return frame._jdf.queryExecution()  # noqa: SLF001  # there is no public name for it


def kinds_of(frame: DataFrame) -> Collection[str]:
    """What a frame's analysed plan is made of, as `PlanNodes.java` tells it."""
    return str(_nodes(_jvm_of(frame.sparkSession)).of(execution_of(frame).analyzed())).split(" ")


def text_of(node: JavaObject) -> str:
    """A plan as text, with all columns of each node: `toString` leaves some out."""
    return str(node.treeString(False, False, 2**31 - 1, False, False))


def rdd_id(node: JavaObject) -> int:
    """The number of the RDD that a leaf of a plan reads."""
    return int(node.rdd().id())


def _jvm_of(spark: SparkSession) -> JVMView:
    jvm = spark._jvm  # noqa: SLF001  # there is no public name for it
    assert jvm is not None
    return jvm


def _java_session(spark: SparkSession) -> JavaObject:
    return spark._jsparkSession  # noqa: SLF001  # there is no public name for it


def unchecked_arrow(frame: DataFrame) -> pa.Table:
    """What `toArrow` gives before it looks whether columns that have no nulls for Spark have none."""
    classic: Any = frame
    # neither DataFrame.to nor when(true, column) makes Spark's Arrow say that there may be nulls
    batches = classic._collect_as_arrow(empty_list_if_zero_records=False)  # noqa: SLF001  # toArrow refuses the rows
    return pa.Table.from_batches(batches)


class Internals:
    """What is looked up once for all plans of a JVM: each look-up is a round trip."""

    def __init__(self, spark: SparkSession) -> None:
        """Raises AttributeError or a Py4JError where Spark lacks a name."""
        jvm = _jvm_of(spark)
        env = scala_object(jvm, "org.apache.spark.SparkEnv").get()
        self.jvm = jvm
        self.blocks, self.memory, self.task = env.blockManager(), env.memoryManager(), _instance(jvm, _TASK)
        self.nodes, self._inputs = _nodes(jvm), _instance(jvm, _INPUT)
        self.sessions = jvm.org.apache.spark.sql.classic.SparkSession
        self.none = scala_object(jvm, "scala.None")
        self.converters = jvm.scala.jdk.javaapi.CollectionConverters
        self.new_limit = jvm.org.apache.spark.sql.execution.LocalLimitExec
        self.new_alias = jvm.org.apache.spark.sql.catalyst.expressions.Alias
        self.columns = scala_object(jvm, "org.apache.spark.sql.classic.ExpressionUtils")
        self.read_file = jvm.org.apache.spark.sql.api.python.PythonSQLUtils.readArrowStreamFromFile
        self._settings: tuple[SparkSession, JavaObject] | None = None

    @contextmanager
    def active(self, session: SparkSession) -> Iterator[None]:
        """Let nodes of plans that this thread makes belong to a session: they ask for the active one, or have none."""
        before = self.sessions.getActiveSession()
        self.sessions.setActiveSession(_java_session(session))
        try:
            yield
        finally:
            if before.isDefined():
                self.sessions.setActiveSession(before.get())
            else:
                self.sessions.clearActiveSession()

    def input(self, session: SparkSession, types: StructType, empty: pa.RecordBatch) -> JavaObject:
        """A frame without rows of one partition, with the array that can hold them; see `PlanInput.java`."""
        return self._inputs.of(_java_session(session), empty.serialize().to_pybytes(), types.json())

    def kind(self, node: JavaObject) -> str:
        """The class of a plan's node, or of an expression, by its name alone."""
        return str(self.nodes.kind(node))

    def number(self, column: JavaObject) -> int:
        """Spark's number of a column."""
        return int(self.nodes.number(column))

    def sequence(self, many: list[Any]) -> JavaObject:
        """Java objects as a Scala sequence."""
        buffer = self.jvm.java.util.ArrayList()
        for one in many:
            buffer.add(one)
        return self.converters.asScala(buffer).toSeq()

    def column(self, expression: JavaObject) -> Column:
        """An expression of a plan as a column of DataFrames."""
        return Column(self.columns.column(expression))

    def named(self, expression: JavaObject, column: JavaObject) -> Column:
        """The same as the column of a plan that others name by its number."""
        nothing = self.sequence([])
        return self.column(self.new_alias(expression, column.name(), column.exprId(), nothing, self.none, nothing))

    def task_settings(self, session: SparkSession) -> JavaObject:
        """A session's settings as a task reads them; those of a planning session do not change."""
        if self._settings is None or self._settings[0] is not session:
            made = self.jvm.java.util.Properties()
            made.putAll(dict(session.conf.getAll))
            self._settings = session, made
        return self._settings[1]

    def put(self, cell: JavaObject, rows: pa.RecordBatch, file: "PassedFile") -> None:
        """Make one record batch what an input's partition holds."""
        if rows.nbytes <= _SENT_BYTES_MAX:
            cell[0] = rows.serialize().to_pybytes()
            return
        with file.write() as sink, pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows)
        self.read_file(file.name).copyToArray(cell)  # in the JVM: what it gives here is sent as text

    def run(self, rdd: JavaObject, partition: JavaObject, settings: JavaObject, file: "PassedFile") -> None:
        """Compute a partition of Arrow batches into a file, on this thread; see `DirectTask.java`.

        Raises what the rows raise as PySpark does, and TooMuchResultError.
        """
        written = self.task.run(rdd, partition, settings, next(_attempts), file.name, RESULT_BYTES_MAX)
        if written > RESULT_BYTES_MAX:
            raise TooMuchResultError


@cache
def _nodes(jvm: JVMView) -> JavaObject:
    return _instance(jvm, _NODES)


def _instance(jvm: JVMView, source: Path) -> JavaObject:
    """One of a class of ours."""
    with _compiling:
        return _compiled(jvm, source).getConstructors()[0].newInstance(None)


@cache
def _compiled(jvm: JVMView, source: Path) -> JavaObject:
    """A class of ours, compiled by Spark's own compiler for the classes that Spark has.

    Once in a JVM: py4j keeps methods by the name of their class, and would call those of the first.
    """
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(scala_object(jvm, "org.apache.spark.SparkEnv").getClass().getClassLoader())
    compiler.cook(source.read_text())
    return compiler.getClassLoader().loadClass(f"deltaworks.{source.stem}")


class PassedFile:
    """A file that this process and its JVM pass rows through: they write it and read it by turns.

    py4j sends bytes as text, and an answer of more than 8 KB waits for 40 ms (Nagle's algorithm and delayed
    acknowledgements). Where the system has files in memory alone it is one, and nothing is left by a death.
    """

    def __init__(self) -> None:
        """Open it."""
        self._closed = False
        if sys.platform == "linux":
            self._file = os.memfd_create("direct-plan")
            self.name, self._named = f"/proc/{os.getpid()}/fd/{self._file}", False
        else:
            self._file, self.name = tempfile.mkstemp(prefix="direct-plan-")
            self._named = True

    def write(self) -> pa.NativeFile:
        """To write it anew from its start."""
        os.ftruncate(self._file, 0)
        return pa.OSFile(self.name, "wb")

    @property
    def size(self) -> int:
        """Bytes that were written."""
        return os.fstat(self._file).st_size

    def read(self) -> bytes:
        """All that was written."""
        return os.pread(self._file, self.size, 0)

    def empty(self) -> None:
        """Give its memory back."""
        os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Close it, once."""
        if self._closed:
            return
        self._closed = True
        os.close(self._file)
        if self._named:
            Path(self.name).unlink(missing_ok=True)

    def __del__(self) -> None:
        with suppress(Exception):  # at the end of the process modules may be gone
            self.close()
