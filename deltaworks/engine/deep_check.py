"""`table check --deep`: every transform is analysed by Spark on empty frames of the declared types; nothing is run."""

import dataclasses
import json
import re
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors.exceptions.base import QueryContextType
from pyspark.sql import DataFrame, SparkSession

from deltaworks.catalog import Catalog, Declared, import_file
from deltaworks.catalog.source import Source, read_source
from deltaworks.catalog.stateful import COMPLETE
from deltaworks.engine import plans
from deltaworks.engine.jvm_log import jvm_log, no_query_log
from deltaworks.engine.spark.internals import execution_of, kinds_of
from deltaworks.findings import Finding, nearest
from deltaworks.words import Column
from deltaworks.words.keeping import Aggregate, Stateful, View

Function = Callable[..., object]

_NOT_DECLARED = ("not declared", "Take it out, or declare it")


def open_session(log: Path) -> SparkSession:
    """A small session that only analyses; what the JVM says goes to the file `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.appName("table-check").master("local[1]")
    options = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.warehouse.dir": str(log.parent / "warehouse"),  # never made: nothing is written
    }
    for option, value in options.items():
        builder = builder.config(option, value)
    no_query_log()
    with jvm_log(log):
        return builder.getOrCreate()


def deep_findings(catalog: Catalog, session: SparkSession) -> list[Finding]:
    """Everything that Spark's analysis finds wrong with the transforms of a project."""
    return [finding for declared in catalog.tables.values() for finding in _table(catalog, declared, session)]


def transforms(catalog: Catalog) -> int:
    """How many tables have a transform to analyse."""
    return sum(declared.transform is not None for declared in catalog.tables.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Transform:
    """A transform.py with frames for its inputs."""

    declared: Declared
    source: Source
    functions: Mapping[str, Function]
    frames: Mapping[str, DataFrame]

    def finding(self, function: str, finding: str, next_step: str) -> Finding:
        """A finding about what a function gives."""
        defined = self.source.functions().get(function)
        place = self.source.at(defined.lineno if defined else None)
        return Finding(place=place, finding=finding, next_step=next_step)

    def call(self, function: str, frames: Mapping[str, DataFrame]) -> tuple[DataFrame, ...] | Finding:
        """What a function of it gives, `keys_from` perhaps several; what it raises is a finding with the line."""
        try:
            given = self.functions[function](**frames)
        except Exception as error:  # noqa: BLE001  # whatever the file raises is its finding
            return _raised(self.source, error, {name for frame in frames.values() for name in frame.columns})
        if isinstance(given, DataFrame):
            return (given,)
        if function == "keys_from" and isinstance(given, tuple) and given:
            wrong = [one for one in given if not isinstance(one, DataFrame)]
            if not wrong:
                return given
            given = wrong[0]
        return self.finding(function, f"{function} gives {type(given).__name__}, no DataFrame", "Return a DataFrame")


def _table(catalog: Catalog, declared: Declared, session: SparkSession) -> Iterator[Finding]:
    if declared.transform is None:
        return
    source = read_source(declared.transform, catalog.project)
    if isinstance(source, Finding):  # broken since the catalog was loaded
        yield source
        return
    try:
        functions = vars(import_file(declared.transform))
    except Exception as error:  # noqa: BLE001  # whatever the file raises is its finding
        yield _raised(source, error)
        return
    frames = {name.partition(".")[2]: _empty(session, catalog[name].columns) for name in declared.inputs}
    transform = _Transform(declared=declared, source=source, functions=functions, frames=frames)
    yield from _transform(transform)
    if isinstance(declared.table.kept_as, View):
        yield from _keys_from(transform)


def _transform(transform: _Transform) -> Iterator[Finding]:
    """`transform` gives the declared columns; an aggregate's can be combined."""
    given = transform.call("transform", transform.frames)
    if isinstance(given, Finding):
        yield given
        return
    (computed,) = given
    yield from _columns(transform, "transform", computed, _given_columns(transform.declared))
    reasons = list(plans.instabilities(kinds_of(computed)))
    kept_as = transform.declared.table.kept_as
    if isinstance(kept_as, Aggregate):
        reasons += plans.uncombinable(_plan(computed), keys=kept_as.keys, combine=kept_as.combine)
    for finding, next_step in reasons:
        yield transform.finding("transform", finding, next_step)


def _given_columns(declared: Declared) -> list[Column]:
    """The columns that the transform gives: all but what the engine keeps."""
    kept_as = declared.table.kept_as
    kept = {COMPLETE} if isinstance(kept_as, Stateful) and kept_as.closes is not None else set()
    return [column for column in declared.columns if column.name not in kept]


def _keys_from(transform: _Transform) -> Iterator[Finding]:
    """`keys_from` gives key columns, all or some of them, from the changed rows of each input alone."""
    keys = [column for column in transform.declared.columns if column.name in transform.declared.keys]
    for name, frame in transform.frames.items():
        given = transform.call("keys_from", {name: frame})
        if isinstance(given, Finding):
            yield given
            continue
        for one in given:
            some = [column for column in keys if column.name in one.columns]
            yield from _columns(transform, "keys_from", one, some or keys, of=keys)
            for finding, next_step in plans.instabilities(kinds_of(one)):
                yield transform.finding("keys_from", finding, next_step)


def _columns(
    transform: _Transform, function: str, given: DataFrame, wanted: Sequence[Column], *, of: Sequence[Column] = ()
) -> Iterator[Finding]:
    """The columns wanted, with their types, and no others; their order is free, they are taken by name.

    `of`: the columns of which the wanted ones are some.
    """
    found = [(field.name, field.dataType.simpleString()) for field in given.schema.fields]
    names, types = [name for name, _ in found], dict(found)
    declared = [column.name for column in of or wanted]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield transform.finding(function, f"{function} gives {name} twice", "Give it once")
    for name in names:
        if name not in declared:
            missing = [one for one in declared if one not in names]
            what, without = ("no key", "Take it out") if function == "keys_from" else _NOT_DECLARED
            next_step = nearest(name, missing, "columns") if missing else without
            yield transform.finding(function, f"{function} gives {name}, which is {what}", next_step)
    for column in wanted:
        if column.name not in names:
            finding = f"{function} does not give {column.name}"
            yield transform.finding(function, finding, f"Give it as {column.type}")
        elif types[column.name] != column.type:
            finding = f"{column.name}: found {types[column.name]}, declared {column.type}"
            yield transform.finding(function, finding, f'Write .cast("{column.type}"), or mend the declaration')


def _empty(session: SparkSession, columns: Sequence[Column]) -> DataFrame:
    return session.createDataFrame([], ", ".join(f"`{column.name}` {column.type}" for column in columns))


def _plan(frame: DataFrame) -> plans.Node:
    return plans.tree(json.loads(execution_of(frame).analyzed().toJSON()))


def _raised(source: Source, error: Exception, columns: Collection[str] = ()) -> Finding:
    """An error of the file as a finding: its line, one sentence, the nearest name; never a trace."""
    place = source.at(_line(source, error))
    if isinstance(error, AnalysisException) and (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        parameters = error.getMessageParameters() or {}
        wrong = parameters.get("objectName", "?").strip("`")
        known = re.findall(r"`([^`]+)`", parameters.get("proposal", ""))
        return Finding(place=place, finding=f"there is no column {wrong}", next_step=nearest(wrong, known, "columns"))
    if isinstance(error, PySparkException) and error.getCondition() == "ATTRIBUTE_NOT_SUPPORTED":
        wrong = (error.getMessageParameters() or {}).get("attr_name", "?")
        return Finding(place=place, finding=f"there is no column {wrong}", next_step=nearest(wrong, columns, "columns"))
    text = (str(error).strip() or "no message").splitlines()[0]
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        finding = f"{error.obj.__name__} has no {error.name}"
        return Finding(place=place, finding=finding, next_step=nearest(error.name or "?", dir(error.obj), "names"))
    if not isinstance(error, PySparkException):
        text = f"{type(error).__name__}: {text}"
    text = re.sub(r"^\[[A-Z0-9_.]+\] *| *SQLSTATE: \w+.*$| \(/.*\)$", "", text)
    return Finding(place=place, finding=text, next_step="Mend the line")


def _line(source: Source, error: Exception) -> int | None:
    """The line that Spark names for the column, else the last one of the file that ran."""
    for context in error.getQueryContext() if isinstance(error, AnalysisException) else []:
        if context.contextType() == QueryContextType.DataFrame:
            file, _, line = context.callSite().rpartition(":")
            if file == str(source.path) and line.isdigit():
                return int(line)
    if isinstance(error, SyntaxError):
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(source.path)]
    return lines[-1] if lines else None
