"""What decides which rows of its inputs a view's keys need: asked of the optimiser once, when the view is planned.

The view is planned with a condition on each key, `key = (a value that is not known)`. Where the optimiser pushes that
down to an input, as `column = (that value)`, rows whose column has another value have no part in the key's rows. A
value that is not known is a scalar subquery: a literal would be computed with, and what holds for it alone be taken for
what holds for all. Beyond an Expand (overlapping windows) the optimiser pushes nothing: a row takes part there where
one of what is made of it has the value.

Where a scan of an input has no such condition, a join may say what it needs of it: rows that meet no row of the other
side have no part in the result. So it needs those that are equal to some row that another scan needs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from itertools import count
from operator import and_

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltaworks.engine.spark.internals import Internals, execution_of, listed, rdd_id
from deltaworks.engine.spark.sessions import of_sessions

ALTERNATIVES_MAX = 16
"""One row is made more than this by an Expand: each is an expression that is kept for each row of the input."""
_LEFT_NEEDS_MATCHES = frozenset({"Inner", "Cross", "LeftSemi", "RightOuter"})
"""Joins in which a row of the left side without one of the right side has no part in the result."""
_RIGHT_NEEDS_MATCHES = frozenset({"Inner", "Cross", "LeftSemi", "LeftOuter", "LeftAnti"})
_LEFT_STAYS = frozenset({"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti"})
"""Joins in which a row of the result has the values of one of the left side."""
_RIGHT_STAYS = frozenset({"Inner", "Cross", "RightOuter"})
_EQUALITIES = frozenset({"EqualTo", "EqualNullSafe"})
_numbers = count(1)


@dataclass(frozen=True, kw_only=True)
class Joined:
    """Rows are needed whose column is equal to that of some row that another scan needs."""

    column: str
    scan: int
    its_column: str


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A place of the plan at which an input is read."""

    input: str
    decides: tuple[Mapping[str, str], ...] = ()
    """A row is needed where one of these holds. In each, by key, the column or expression that is equal to that key."""
    joined: tuple[Joined, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Expression:
    """What is computed from a row of an input."""

    java: JavaObject
    columns: Sequence[JavaObject]
    """Columns of the input, with the numbers that the expression uses."""
    spark: Internals
    where: Sequence[JavaObject] = ()
    """Conditions of the plan on the row: where one does not hold it may raise, and the row has no part in the keys."""


@dataclass(frozen=True, kw_only=True)
class PushedKeys:
    """Every scan of a plan, with what is needed of it; an input that has none is needed whole."""

    scans: tuple[Scan, ...] = ()
    expressions: Mapping[str, Expression] = field(default_factory=dict)
    """By what the scans call them: names that nothing else has."""

    def expressions_of(self, name: str) -> dict[str, Expression]:
        """Those over an input."""
        used = {what for one in self.scans if one.input == name for by_key in one.decides for what in by_key.values()}
        return {what: one for what, one in self.expressions.items() if what in used}


def pushed_keys(
    made: DataFrame, frames: Mapping[str, DataFrame], schemas: Mapping[str, pa.Schema], keys: pa.Schema,
    values: Mapping[str, DataFrame], internals: Internals,
) -> PushedKeys:  # fmt: skip
    """Ask the optimiser of Spark about a view over these frames of its inputs, which have these schemas.

    `keys` all have a value: what holds then need not hold where one is null, or is not among these columns.
    `values`: for each key a frame of its column, of which the value that is not known is made; those of one frame would
    be made one.
    """
    asked = made
    for name in keys.names:
        unknown = values[name].agg(F.max(F.col(f"`{name}`")).alias(name)).scalar()
        asked = asked.where(F.col(f"`{name}`") == unknown)
    if of_sessions(made):
        return PushedKeys()
    inputs = {rdd_id(execution_of(frame).analyzed()): name for name, frame in frames.items()}
    before, after = (_Plan(one, inputs, schemas, keys, internals) for one in (made, asked))
    if before.reads != after.reads:  # a branch was planned away: nobody knows for which keys
        return PushedKeys()
    return after.found()


def with_expressions(frame: DataFrame, expressions: Mapping[str, Expression]) -> DataFrame:
    """A column for each of these expressions over an input."""
    mine = {str(one.name()): one for one in listed(execution_of(frame).analyzed().output())}
    given = {
        one.spark.number(column): one.spark.named(mine[str(column.name())], column)
        for one in expressions.values() for column in one.columns
    }  # fmt: skip
    return frame.select(*given.values()).select(*(_column(one).alias(name) for name, one in expressions.items()))


def _column(expression: Expression) -> Column:
    column, spark = expression.spark.column(expression.java), expression.spark
    if not expression.where:
        return column
    return F.when(reduce(and_, map(spark.column, expression.where)), column)


@dataclass(frozen=True)
class _Asked:
    """What holds at a node for each row that is needed."""

    equals: Sequence[tuple[JavaObject, str]] = ()
    """Expressions, each equal to a key."""
    where: Sequence[JavaObject] = ()
    """Other conditions, those first that the plan asks first."""

    def over(self, made: Callable[[JavaObject], JavaObject]) -> "_Asked":
        """The same about what columns are made of."""
        return _Asked([(made(what), key) for what, key in self.equals], [made(one) for one in self.where])


@dataclass(frozen=True, kw_only=True)
class _Node:
    """A node of a plan."""

    java: JavaObject
    kind: str
    children: Sequence["_Node"]
    scan: int | None
    """Which one it is, where it is an input."""

    spark: Internals

    @cached_property
    def ids(self) -> frozenset[int]:
        """The numbers of its columns."""
        return frozenset(self.spark.number(one) for one in listed(self.java.output()))


class _Plan:
    """An optimised plan, looked through."""

    def __init__(
        self, frame: DataFrame, inputs: Mapping[int, str], schemas: Mapping[str, pa.Schema], keys: pa.Schema,
        internals: Internals,
    ) -> None:  # fmt: skip
        self._inputs, self._schemas, self._keys, self._spark = inputs, schemas, keys, internals
        self._names: list[str] = []
        self._decides: dict[int, tuple[Mapping[str, str], ...]] = {}
        self._expressions: dict[str, Expression] = {}
        self._top = self._node(execution_of(frame).optimizedPlan())

    @property
    def reads(self) -> Counter[str]:
        """How often it reads which input."""
        return Counter(self._names)

    def found(self) -> PushedKeys:
        """What is needed of each scan."""
        self._look(self._top, [_Asked()])
        joined: dict[int, list[Joined]] = {}
        for scan, one in self._joins(self._top):
            joined.setdefault(scan, []).append(one)
        scans = tuple(
            Scan(input=name, decides=self._decides.get(at, ()), joined=tuple(joined.get(at, ())))
            for at, name in enumerate(self._names)
        )
        return PushedKeys(scans=scans, expressions=self._expressions)

    def _node(self, java: JavaObject) -> _Node:
        kind, children = self._kind(java), [self._node(child) for child in listed(java.children())]
        scan = None
        if not children:
            name = self._inputs.get(rdd_id(java)) if kind == "LogicalRDD" else None
            self._names.append(name or "")
            scan = len(self._names) - 1
        return _Node(java=java, kind=kind, children=children, scan=scan, spark=self._spark)

    def _look(self, node: _Node, alternatives: list[_Asked]) -> None:
        """Follow conditions down to the inputs; of `alternatives` one holds for each row that is needed."""
        match node.kind:
            case "Filter":
                mine, others = self._conditions(node.java.condition())
                together = [_Asked([*one.equals, *mine], [*others, *one.where]) for one in alternatives]
                self._look(node.children[0], together)
            case "Project":
                made = dict(self._made(node.java.projectList()))
                only_passed = all(self._is_column(one) and self._id(one) == name for name, one in made.items())
                self._look(node.children[0], alternatives if only_passed else self._instead(alternatives, [made]))
            case "Expand":
                ids = [self._id(one) for one in listed(node.java.output())]
                made_of = [dict(zip(ids, listed(one), strict=True)) for one in listed(node.java.projections())]
                few = len(made_of) <= ALTERNATIVES_MAX
                self._look(node.children[0], self._instead(alternatives, made_of) if few else [_Asked()])
            case "LogicalRDD" if node.scan is not None and self._names[node.scan]:
                found = tuple(self._decided(node, one) for one in alternatives)
                if all(found):
                    self._decides[node.scan] = found
            case _:
                for child in node.children:
                    self._look(child, [_Asked()])

    def _instead(self, alternatives: list[_Asked], made: Sequence[Mapping[int, JavaObject]]) -> list[_Asked]:
        """The same about what columns are made of, in one of these ways."""
        return [asked.over(partial(self._over, made=one)) for asked in alternatives for one in made]

    def _over(self, expression: JavaObject, made: Mapping[int, JavaObject]) -> JavaObject:
        """An expression over what its columns are made of."""
        if self._is_column(expression):
            return made[self._id(expression)]
        children = listed(expression.children())
        return expression.withNewChildren(self._spark.sequence([self._over(one, made) for one in children]))

    def _conditions(self, condition: JavaObject) -> tuple[list[tuple[JavaObject, str]], list[JavaObject]]:
        """What must be equal to which key, and what else must hold."""
        equals, others = list[tuple[JavaObject, str]](), list[JavaObject]()
        for part in self._parts(condition):
            if self._is_about_keys(part):
                equals += self._equal_to_key(part)
            else:
                others.append(part)
        return equals, others

    def _equal_to_key(self, part: JavaObject) -> Iterator[tuple[JavaObject, str]]:
        if self._kind(part) not in _EQUALITIES:
            return
        sides = part.left(), part.right()
        for mine, value in (sides, sides[::-1]):
            if self._kind(value) != "ScalarSubquery":
                continue
            key = _key(value)
            if key in self._keys.names and _comparable(self._keys.field(key).type):
                yield mine, key

    def _is_about_keys(self, expression: JavaObject) -> bool:
        """Whether a key's value, which is not known, is in it."""
        return self._kind(expression) == "ScalarSubquery" or any(
            map(self._is_about_keys, listed(expression.children()))
        )

    def _decided(self, leaf: _Node, asked: _Asked) -> Mapping[str, str]:
        """By key, what of a scan is equal to it."""
        assert leaf.scan is not None
        found: dict[str, str] = {}
        for what, key in asked.equals:
            if self._is_column(what):
                found[key] = str(what.name())
            else:
                found[key] = name = f"expression {next(_numbers)} of {self._names[leaf.scan]}"
                columns = listed(leaf.java.output())
                self._expressions[name] = Expression(java=what, columns=columns, spark=self._spark, where=asked.where)
        return found

    def _joins(self, node: _Node) -> Iterator[tuple[int, Joined]]:
        """What joins say about which scan."""
        for child in node.children:
            yield from self._joins(child)
        if node.kind != "Join" or not node.java.condition().isDefined():
            return
        (left, right), how = node.children, str(node.java.joinType())
        for equal in self._parts(node.java.condition().get()):
            if self._kind(equal) not in _EQUALITIES:
                continue
            one, other = equal.left(), equal.right()
            if {self._kind(one), self._kind(other)} != {"AttributeReference"}:
                continue
            if self._id(one) in right.ids:
                one, other = other, one
            if self._id(one) not in left.ids or self._id(other) not in right.ids:  # of one side
                continue
            mine, theirs = self._origin(left, self._id(one)), self._origin(right, self._id(other))
            if mine is None or theirs is None:
                continue
            if how in _RIGHT_NEEDS_MATCHES:
                yield theirs[0], Joined(column=theirs[1], scan=mine[0], its_column=mine[1])
            if how in _LEFT_NEEDS_MATCHES:
                yield mine[0], Joined(column=mine[1], scan=theirs[0], its_column=theirs[1])

    def _origin(self, node: _Node, column: int) -> tuple[int, str] | None:
        """The scan and the column of it that a column's values are.

        Rows of the input with other values there make no row with this value, and change none.
        """
        match node.kind:
            case "LogicalRDD" if node.scan is not None and self._names[node.scan]:
                input_of = self._names[node.scan]
                name = next(str(one.name()) for one in listed(node.java.output()) if self._id(one) == column)
                return (node.scan, name) if _comparable(self._schemas[input_of].field(name).type) else None
            case "Filter" | "Sort":
                return self._origin(node.children[0], column)
            case "Project":
                return self._passed(node, node.java.projectList(), column)
            case "Aggregate":
                grouped = {self._id(one) for one in listed(node.java.groupingExpressions()) if self._is_column(one)}
                return self._passed(node, node.java.aggregateExpressions(), column, among=grouped)
            case "Join":
                (left, right), how = node.children, str(node.java.joinType())
                if column in left.ids:
                    return self._origin(left, column) if how in _LEFT_STAYS else None
                return self._origin(right, column) if how in _RIGHT_STAYS else None
            case _:
                return None

    def _passed(
        self, node: _Node, columns: JavaObject, column: int, *, among: set[int] | None = None
    ) -> tuple[int, str] | None:
        """The origin of a column that a node passes on under this or another name."""
        what = dict(self._made(columns)).get(column)
        if what is None or not self._is_column(what) or (among is not None and self._id(what) not in among):
            return None
        return self._origin(node.children[0], self._id(what))

    def _parts(self, condition: JavaObject) -> Iterator[JavaObject]:
        """Conditions that all must hold, in the order of the plan."""
        if self._kind(condition) == "And":
            for part in listed(condition.children()):
                yield from self._parts(part)
        else:
            yield condition

    def _made(self, columns: JavaObject) -> Iterator[tuple[int, JavaObject]]:
        """Columns, each with what it is made of."""
        for one in listed(columns):
            yield self._id(one), one.child() if self._kind(one) == "Alias" else one

    def _is_column(self, expression: JavaObject) -> bool:
        return self._kind(expression) == "AttributeReference"

    def _id(self, column: JavaObject) -> int:
        return self._spark.number(column)

    def _kind(self, node: JavaObject) -> str:
        return self._spark.kind(node)


def _key(subquery: JavaObject) -> str:
    """The key whose value a subquery stands for: its column has that name."""
    (column,) = listed(subquery.plan().output())
    return str(column.name())


def _comparable(kind: pa.DataType) -> bool:
    """Whether Arrow finds equal what Spark does: zeros of both signs and NaN are equal otherwise."""
    return not (pa.types.is_floating(kind) or pa.types.is_nested(kind))
