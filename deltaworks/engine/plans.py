"""What a transform's analysed plan says: whether a batch's groups can be combined, and whether it gives the same again.

The first works on the JSON of Spark's `TreeNode.toJSON`: nodes in preorder, each with its class and number of children.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

Reason = tuple[str, str]
"""A finding and its next step."""

_UNDER = ("Project", "Filter", "Generate", "Expand", "SubqueryAlias")  # Expand is how a hopping window is resolved
_LEAVES = ("LogicalRDD", "LocalRelation")
_FUNCTIONS = {"add": ("Sum", "Count", "CountIf"), "least": ("Min",), "greatest": ("Max",)}
_NAMES = {"add": "sum, count or count_if", "least": "min", "greatest": "max"}
_PREDICATES = frozenset({
    *("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"),
    *("And", "Or", "Not", "In", "InSet", "IsNull", "IsNotNull", "Like", "RLike"),
})  # fmt: skip
_INEXACT = ("double", "float")
_UNSTABLE = frozenset({
    *("Rand", "Randn", "RandStr", "Uniform", "Uuid", "Shuffle", "Sample", "MonotonicallyIncreasingID"),
    *("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now", "InputFileName", "SparkPartitionID"),
    *("CallMethodViaReflection", "TryReflect"),  # whatever the method does
})  # fmt: skip
_TEXT = "'"
_CLOCK = frozenset(f"{_TEXT}{word}" for word in ("now", "today", "tomorrow", "yesterday"))
"""Texts that a cast to a time takes for one that passes (Spark, "Special values for date and timestamp")."""
_FROM_ROWS = "Use a column of the input: times and ids come with the rows"


@dataclasses.dataclass(frozen=True)
class Node:
    """A node of a plan or of an expression."""

    kind: str
    fields: Mapping[str, Any]
    children: tuple["Node", ...]

    def walk(self) -> Iterator["Node"]:
        """The node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def expressions(self, field: str) -> list["Node"]:
        """The expressions of a plan's node in a field."""
        return [tree(nodes) for nodes in self.fields[field]]

    @property
    def id(self) -> int | None:
        """Spark's number of a named expression."""
        given = self.fields.get("exprId")
        return None if given is None else int(given["id"])


def tree(nodes: Sequence[Mapping[str, Any]]) -> Node:
    """A tree from its preorder."""
    made, rest = _subtree(nodes, 0)
    assert rest == len(nodes)
    return made


def _subtree(nodes: Sequence[Mapping[str, Any]], at: int) -> tuple[Node, int]:
    fields, children = nodes[at], []
    following = at + 1
    for _ in range(int(fields["num-children"])):
        child, following = _subtree(nodes, following)
        children.append(child)
    return Node(str(fields["class"]).rpartition(".")[2], fields, tuple(children)), following


def instabilities(kinds: Collection[str]) -> Iterator[Reason]:
    """What of a plan gives something else the next time; `kinds` of its nodes, as `PlanNodes.java` tells them."""
    for kind in sorted(_UNSTABLE.intersection(kinds)):
        yield f"{kind} gives something else in a replay", _FROM_ROWS
    for word in sorted(_CLOCK.intersection(kinds)):
        yield f"a cast of {word.removeprefix(_TEXT)!r} gives something else in a replay", _FROM_ROWS


def _classes(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("class"), str):
            yield value["class"].rpartition(".")[2]
        for inner in value.values():
            yield from _classes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _classes(inner)


def uncombinable(plan: Node, *, keys: Sequence[str], combine: Mapping[str, str]) -> Iterator[Reason]:
    """Why the result over a batch cannot be combined with what is stored; nothing if it can."""
    above: list[Node] = []
    node = plan
    while node.kind in ("Project", "SubqueryAlias"):
        above.append(node)
        node = node.children[0] if node.children else Node("", {}, ())
    if node.kind != "Aggregate":
        yield _no_aggregate(plan, node)
        return
    yield from _below(node)
    columns = _columns(above, node)
    for name, how in combine.items():
        if name in columns:
            yield from _combined(name, how, columns[name])
    yield from _keys(node, {name: columns[name] for name in keys if name in columns})


def _no_aggregate(plan: Node, top: Node) -> Reason:
    if not any(node.kind == "Aggregate" for node in plan.walk()):
        return "there is no aggregation", "Write groupBy(...).agg(...)"
    finding = f"{top.kind} over the aggregation: a batch holds only a part of each group"
    return finding, "Move it into a view that reads this table, or below the aggregation"


def _below(aggregate: Node) -> Iterator[Reason]:
    below = [node for child in aggregate.children for node in child.walk()]
    kinds = [node.kind for node in below]
    if "Aggregate" in kinds:
        yield "there are two aggregations", "Keep one: a part of a group cannot be grouped again"
    for kind in sorted(set(kinds) - {*_UNDER, *_LEAVES, "Aggregate"}):
        finding = f"{kind} under the aggregation: only filters, projections and explodes combine"
        yield finding, "Take it out, or keep the table as view(...)"
    if any(kind.endswith("Subquery") for kind in _classes([dict(node.fields) for node in (aggregate, *below)])):
        yield "a subquery in an expression", "Take it out, or keep the table as view(...)"


def _columns(above: Sequence[Node], aggregate: Node) -> dict[str, Node]:
    """Each output column as an expression of the aggregation's own."""
    known = {one.id: one for one in aggregate.expressions("aggregateExpressions")}
    outputs = list(known.values())
    for project in reversed([node for node in above if node.kind == "Project"]):
        outputs = [_resolved(one, known) for one in project.expressions("projectList")]
        known = {one.id: one for one in outputs}
    return {str(one.fields.get("name")): one for one in outputs}


def _resolved(node: Node, known: Mapping[int | None, Node]) -> Node:
    """The expression with what it refers to in its place; its own name and number stay."""
    if node.kind == "AttributeReference":
        return known.get(node.id, node)
    return Node(node.kind, node.fields, tuple(_resolved(child, known) for child in node.children))


def _combined(name: str, how: str, column: Node) -> Iterator[Reason]:
    inner, casts = _stripped(column, how)
    if inner.kind != "AggregateExpression":
        finding = f"{name} is computed from {inner.kind}, not by {_NAMES[how]} alone"
        yield finding, "Keep the parts in columns of their own, and compute it in a view or a query"
        return
    function = inner.children[0]
    if inner.fields.get("isDistinct"):
        yield f"{name} counts distinct values: two batches may share one", "Keep the table as view(...)"
    elif function.kind not in _FUNCTIONS[how]:
        finding = f"{name} is combined by {how}, computed by {function.kind.lower()}"
        yield finding, f"Compute it by {_NAMES[how]}, or combine it another way"
    elif casts and function.kind == "Sum" and not _exact(function.children[0]):
        yield f"{name} is a sum of doubles, rounded in each batch", "Cast inside: sum(x.cast(...))"


def _stripped(node: Node, how: str) -> tuple[Node, bool]:
    """What is under names, and for sums under casts and coalesce(..., 0), which do not change how they add up."""
    casts = False
    while True:
        if node.kind == "Alias":
            node = node.children[0]
        elif how == "add" and node.kind == "Cast":
            node, casts = node.children[0], True
        elif how == "add" and node.kind == "Coalesce" and all(_zero(child) for child in node.children[1:]):
            node = node.children[0]
        else:
            return node, casts


def _zero(node: Node) -> bool:
    if node.kind == "Cast":
        return _zero(node.children[0])
    text = str(node.fields.get("value", ""))
    return node.kind == "Literal" and text.strip("0.") == "" and "0" in text


def _exact(node: Node) -> bool:
    if node.kind in _PREDICATES:
        return True
    if node.kind in ("Cast", "AttributeReference", "Literal"):
        return node.fields.get("dataType") not in _INEXACT
    return all(_exact(child) for child in node.children)


def _keys(aggregate: Node, keys: Mapping[str, Node]) -> Iterator[Reason]:
    """Groups and keys are one to one: two groups of a batch with the same key could not be merged."""
    groups = aggregate.expressions("groupingExpressions")
    held: list[Node] = []
    for name, column in keys.items():
        inner = column
        while inner.kind in ("Alias", "GetStructField"):  # a window's start tells windows apart
            inner = inner.children[0]
        if inner in groups:
            held.append(inner)
        elif any(node.kind == "AggregateExpression" for node in inner.walk()):
            yield f"key {name} is the result of an aggregation", "Group by it"
        else:
            yield f"key {name} is computed after grouping: groups may share it", "Group by the very expression"
    for group in groups:
        if group not in held and len(held) == len(keys):
            what = group.fields.get("name") or group.kind
            yield f"grouped by {what}, which no key holds", "Make it a key, or group without it"
