"""Which columns of a view's inputs decide its keys: asked of the optimiser once, when the view is planned.

The view is planned with a condition on each key, `key = (a value that is not known)`. Where the optimiser pushes that
down to an input, as `column = (that value)`, rows whose column has another value have no part in the key's rows. A
value that is not known is a scalar subquery: a literal would be computed with, and what holds for it alone be taken for
what holds for all.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltaworks.engine.snapshot import Condition
from deltaworks.engine.spark.internals import Internals, rdd_id

Decides = Mapping[str, str]
"""Of one place where an input is read: by key, the column that must be equal to it, or SQL over columns."""


@dataclass(frozen=True, kw_only=True)
class PushedKeys:
    """For each input, of every place where it is read, what of its rows decides which key.

    An input of which a place has nothing such, or that the plan does not name, is not there: it is read whole.
    """

    places: Mapping[str, tuple[Decides, ...]]


def conditions(name: str, given: Sequence[tuple[pa.Table, PushedKeys | None]]) -> list[Condition] | None:
    """Which rows of an input these keys, or parts of keys, can be made from, each with what decides about its columns.

    None: all of them may be needed. What holds where all columns have a value need not hold where one is null.
    """
    found: list[Condition] = []
    for keys, known in given:
        places = None if known is None else known.places.get(name)
        if places is None or any(column.null_count for column in keys.columns):
            return None
        found += [{column: keys[key].unique() for key, column in place.items()} for place in places]
    return found


def pushed_keys(
    made: DataFrame, frames: Mapping[str, DataFrame], keys: pa.Schema, values: Mapping[str, DataFrame],
    internals: Internals,
) -> PushedKeys:  # fmt: skip
    """Ask the optimiser of Spark about a view over these frames of its inputs.

    `keys` all have a value: what holds then need not hold where one is null, or is not among these columns.
    `values`: for each key a frame of its column, of which the value that is not known is made; those of one frame would
    be made one.
    """
    asked = made
    for name in keys.names:
        unknown = values[name].agg(F.max(F.col(f"`{name}`")).alias(name)).scalar()
        asked = asked.where(F.col(f"`{name}`") == unknown)
    inputs = {rdd_id(frame._jdf.queryExecution().analyzed()): name for name, frame in frames.items()}  # noqa: SLF001  # the only way to a plan
    before = Counter(leaf.name for leaf in _leaves(made, inputs, internals))
    after = list(_leaves(asked, inputs, internals))
    if Counter(leaf.name for leaf in after) != before:  # a branch was planned away: nobody knows for which keys
        return PushedKeys(places={})
    found: dict[str, list[Decides]] = {name: [] for name in frames}
    for leaf in after:
        if leaf.name:
            found[leaf.name].append(_decides(leaf, frames[leaf.name], keys, internals))
    return PushedKeys(places={name: tuple(places) for name, places in found.items() if places and all(places)})


@dataclass(frozen=True, kw_only=True)
class _Leaf:
    """A place where an input is read, with the condition right above it."""

    name: str
    node: JavaObject
    condition: JavaObject | None


def _leaves(frame: DataFrame, inputs: Mapping[int, str], internals: Internals) -> Iterator[_Leaf]:
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # the only way to a plan
    yield from _below(plan, None, inputs, internals)


def _below(node: JavaObject, above: JavaObject | None, inputs: Mapping[int, str], spark: Internals) -> Iterator[_Leaf]:
    children = spark.list(node.children())
    if not children:
        name = inputs.get(rdd_id(node)) if _kind(node) == "LogicalRDD" else None
        condition = above.condition() if above is not None and _kind(above) == "Filter" else None
        yield _Leaf(name=name or "", node=node, condition=condition)
    for child in children:
        yield from _below(child, node, inputs, spark)


def _decides(leaf: _Leaf, frame: DataFrame, keys: pa.Schema, spark: Internals) -> Decides:
    """What of the input's rows must be equal to a key there."""
    columns = {int(one.exprId().id()): str(one.name()) for one in spark.list(leaf.node.output())}
    found: dict[str, str] = {}
    for equal in _equalities(leaf.condition, spark):
        sides = equal.left(), equal.right()
        for mine, value in (sides, sides[::-1]):
            if _kind(value) != "ScalarSubquery":
                continue
            key = _key(value, spark)
            # zero and minus zero, and NaN, are equal otherwise in Arrow
            if key not in keys.names or pa.types.is_floating(keys.field(key).type):
                continue
            if _kind(mine) == "AttributeReference":
                name = columns.get(int(mine.exprId().id()))
                text = name
            else:
                text = _sql(mine, frame)
            if text is not None:
                found[key] = text
    return found


def _sql(expression: JavaObject, frame: DataFrame) -> str | None:
    """An expression over an input as SQL; None where that would mean something else."""
    text = str(expression.sql())
    try:
        written = frame.select(F.expr(text).alias("_"))._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # the only way to a plan
        alias = written.projectList().head()
        same = bool(alias.child().semanticEquals(expression))
    except Exception:  # noqa: BLE001  # not all that a plan holds can be written: then the input is read whole
        return None
    return text if same else None


def _equalities(condition: JavaObject | None, spark: Internals) -> Iterator[JavaObject]:
    """The equalities that all must hold."""
    if condition is None:
        return
    if _kind(condition) == "And":
        for part in spark.list(condition.children()):
            yield from _equalities(part, spark)
    elif _kind(condition) in ("EqualTo", "EqualNullSafe"):
        yield condition


def _key(subquery: JavaObject, spark: Internals) -> str:
    """The key whose value a subquery stands for: its column has that name."""
    (column,) = spark.list(subquery.plan().output())
    return str(column.name())


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
