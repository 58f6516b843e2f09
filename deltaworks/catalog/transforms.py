"""Rules of transform.py that its text shows: no Spark is started and nothing is run."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from deltaworks.catalog.reading import Readable
from deltaworks.catalog.source import Source, read_source
from deltaworks.findings import Finding, nearest
from deltaworks.words.keeping import Aggregate, Stateful, View

_ALLOWED = ("pyspark", "deltaworks.words")
# what makes a transform give something else the next time, or reach out of it
_CLOCK_OR_CHANCE = frozenset(
    {
        "current_date",
        "current_timestamp",
        "curdate",
        "now",
        "localtimestamp",
        "unix_micros_now",
        "rand",
        "randn",
        "random",
        "randstr",
        "uniform",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "sample",
        "randomSplit",
    }
)
_CLOCK = re.compile(r"\b(date|timestamp\w*)\s*'\s*(now|today|tomorrow|yesterday)\b.*?'", re.IGNORECASE)
"""A literal of SQL that is the time of its reading (Spark, "Special values for date and timestamp")."""
_REACHES_OUT = frozenset(
    {
        "sparkSession",
        "rdd",
        "write",
        "writeTo",
        "writeStream",
        "collect",
        "toPandas",
        "toArrow",
        "toLocalIterator",
        "show",
        "isEmpty",
        "head",
        "take",
        "tail",
        "foreach",
        "foreachPartition",
        "cache",
        "persist",
        "checkpoint",
        "localCheckpoint",
        "createTempView",
        "createOrReplaceTempView",
        "createGlobalTempView",
    }
)


def transform_findings(table: Readable, names: set[str], project: Path) -> Iterator[Finding]:
    """Everything that is wrong with the text of a table's transform.py, also that there is one or none.

    `names` are the tables that there are: parameters are judged once the inputs are right.
    """
    declared = table.declared
    wanted = _wanted(table)
    if declared.transform is None:
        if wanted:
            place, finding = (declared.folder / "transform.py").relative_to(project).as_posix(), "is missing"
            next_step = f"Write def {' and def '.join(f'{name}({_signature(table, name)})' for name in wanted)}"
            yield Finding(place=place, finding=finding, next_step=next_step)
        return
    source = read_source(declared.transform, project)
    if isinstance(source, Finding):
        yield source
        return
    if not wanted:
        if not isinstance(declared.table.reads, str | tuple):
            finding = f"is not run: the table reads {declared.reads}"
            yield Finding(place=source.shown, finding=finding, next_step="Delete it: columns are taken by name")
        return
    yield from _imports(source)
    for name in wanted:
        yield from _function(table, source, name)
    yield from _parameters(table, source, wanted, names)
    yield from _impure(source)


def parameter_names(inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Names of a transform's parameters, in the order of its inputs: an input's name without the layer."""
    return tuple(name.partition(".")[2] for name in inputs)


def _wanted(table: Readable) -> tuple[str, ...]:
    match table.declared.table.kept_as:
        case View():
            return ("transform", "keys_from")
        case Aggregate() | Stateful():
            return ("transform",)
    return ()


def _imports(source: Source) -> Iterator[Finding]:
    for module, line, _ in source.imports():
        if not any(module == allowed or module.startswith(f"{allowed}.") for allowed in _ALLOWED):
            next_step = "Import pyspark and deltaworks.words only"
            yield Finding(place=source.at(line), finding=f"transform.py imports {module}", next_step=next_step)


def _function(table: Readable, source: Source, name: str) -> Iterator[Finding]:
    if name not in source.functions():
        next_step = f"Write def {name}({_signature(table, name)})"
        yield Finding(place=source.shown, finding=f"there is no function {name}", next_step=next_step)


def _parameters(table: Readable, source: Source, functions: tuple[str, ...], names: set[str]) -> Iterator[Finding]:
    """Every function takes the inputs by name, and nothing else."""
    inputs = table.declared.inputs
    wanted = parameter_names(inputs)
    if len(set(inputs)) < len(inputs) or any(name not in names or name.startswith("bronze.") for name in inputs):
        return
    if len(set(wanted)) < len(wanted):
        next_step = "Read one of them through a table of another name"
        yield table.at_field("reads", "two inputs have the same name in different layers", next_step)
        return
    for name in functions if inputs else ():
        if name in source.functions():
            yield from _parameters_of(table, source, source.functions()[name], wanted)


def _parameters_of(
    table: Readable, source: Source, function: ast.FunctionDef, wanted: tuple[str, ...]
) -> Iterator[Finding]:
    name, given = function.name, function.args
    parameters = [*given.args, *given.kwonlyargs]
    unknown = [parameter for parameter in parameters if parameter.arg not in wanted]
    for parameter in unknown:
        finding = f"{name} takes {parameter.arg}, which is no input"
        next_step = nearest(parameter.arg, wanted, "inputs")
        yield Finding(place=source.at(parameter.lineno), finding=finding, next_step=next_step)
    if unknown:
        return
    place, next_step = source.at(function.lineno), f"Write def {name}({_signature(table, name)})"
    if given.posonlyargs or given.vararg or given.kwarg or len(parameters) < len(wanted):
        finding = f"{name} does not take its inputs by name"
        yield Finding(place=place, finding=finding, next_step=next_step)
        return
    optional = len(given.defaults) + sum(default is not None for default in given.kw_defaults)
    if name == "keys_from" and len(wanted) > 1 and optional < len(parameters):
        finding = "keys_from is called with one changed input at a time"
        yield Finding(place=place, finding=finding, next_step=next_step)


def _signature(table: Readable, name: str) -> str:
    wanted = parameter_names(table.declared.inputs)
    one_by_one = name == "keys_from" and len(wanted) > 1
    return ", ".join(f"{parameter}=None" if one_by_one else parameter for parameter in wanted)


def _impure(source: Source) -> Iterator[Finding]:
    """Transforms are pure: the same rows give the same result in a replay."""
    for node in ast.walk(source.tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in _CLOCK_OR_CHANCE:
            finding = f"{name} gives something else in a replay"
            next_step = "Use a column of the input: times and ids come with the rows"
            yield Finding(place=source.at(node.lineno), finding=finding, next_step=next_step)  # type: ignore[attr-defined]  # both kinds have a line
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := _CLOCK.search(node.value)):
            finding = f"{found[0]} gives something else in a replay"
            next_step = "Use a column of the input: times and ids come with the rows"
            yield Finding(place=source.at(node.lineno), finding=finding, next_step=next_step)
        elif isinstance(node, ast.Attribute) and name in _REACHES_OUT:
            finding = f"{name} reaches out of the transform"
            next_step = "Give back a DataFrame made from the inputs, and nothing else"
            yield Finding(place=source.at(node.lineno), finding=finding, next_step=next_step)
