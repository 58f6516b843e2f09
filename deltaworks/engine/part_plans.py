"""Whether the transform of a stateful table keeps parts apart, as its analysed plan says.

The engine gives it all rows of some parts, and takes what it gives as theirs. So rows of two parts must not meet: an
aggregation groups by the part, a join compares it, a window is of one part.
"""

from collections.abc import Iterator, Sequence

from deltaworks.engine.plans import Node, Reason, tree

_LIMITS = ("GlobalLimit", "LocalLimit", "Limit", "Offset", "Tail", "Sample")
_PASSED = ("Filter", "Sort", "SubqueryAlias", "Window", "Repartition", "RepartitionByExpression", "Distinct", "View")
Ids = frozenset[int]


def mixing(plan: Node, part: Sequence[str]) -> Iterator[Reason]:
    """Where rows of different parts meet; nothing if they never do."""
    for name in part:
        reasons: list[Reason] = []
        held = _held(plan, name, reasons)
        top = plan
        while top.kind in _PASSED:
            top = top.children[0]
        given = [one for one in _outputs(top) if one.fields.get("name") == name]
        if not reasons and given and given[0].id not in held:
            reasons.append((f"{name} is not the {name} of the rows that it is made from", "Give it as it is"))
        yield from dict.fromkeys(reasons)


def _held(node: Node, name: str, reasons: list[Reason]) -> Ids:
    """The numbers of the columns that hold the part; what mixes parts is added to the reasons."""
    below = [_held(child, name, reasons) for child in node.children]
    held = frozenset[int]().union(*below)
    match node.kind:
        case "Project":
            return _passed(_outputs(node), held)
        case "Aggregate":
            if not _has(node, "groupingExpressions", held):
                reasons.append((f"an aggregation without {name}: it puts parts together", f"Group by {name} too"))
            return _passed(_outputs(node), held)
        case "Window" if not _has(node, "partitionSpec", held):
            reasons.append((f"a window without {name}: it looks into other parts", f"Partition it by {name} too"))
        case "Deduplicate" if not _has(node, "keys", held):
            reasons.append((f"copies are found without {name}: other parts decide", f"Compare {name} too"))
        case "Join" if not _compares(node, below[0], below[1]):
            reasons.append((f"a join that does not compare {name}: it puts parts together", f"Join by {name} too"))
        case limit if limit in _LIMITS:
            reasons.append(("a limit takes rows of some parts", "Rank the rows of a part, and filter"))
        case _ if not node.children:
            return frozenset(one.id for one in _outputs(node) if one.fields.get("name") == name and one.id is not None)
    return held


def _outputs(node: Node) -> list[Node]:
    """The columns that a node names."""
    for field in ("projectList", "aggregateExpressions", "output"):
        if isinstance(node.fields.get(field), list):
            return node.expressions(field)
    return []


def _passed(outputs: Sequence[Node], held: Ids) -> Ids:
    """The outputs that are a held column, also under another name."""
    return frozenset(one.id for one in outputs if one.id is not None and _is(one, held))


def _is(node: Node, held: Ids) -> bool:
    while node.kind == "Alias":
        node = node.children[0]
    return node.kind == "AttributeReference" and node.id in held


def _has(node: Node, field: str, held: Ids) -> bool:
    return any(_is(one, held) for one in node.expressions(field))


def _compares(join: Node, left: Ids, right: Ids) -> bool:
    """Whether both sides' column must be equal for rows to meet."""
    condition = join.fields.get("condition")
    return bool(condition) and _equal(tree(condition), left, right)  # type: ignore[arg-type]  # a tree in preorder


def _equal(node: Node, left: Ids, right: Ids) -> bool:
    if node.kind == "And":
        return any(_equal(child, left, right) for child in node.children)
    if node.kind not in ("EqualTo", "EqualNullSafe"):
        return False
    one, other = node.children
    return (_is(one, left) and _is(other, right)) or (_is(one, right) and _is(other, left))
