"""Which plans cannot be kept and computed as one partition, and why."""

from collections.abc import Collection, Container, Iterator

from py4j.java_gateway import JavaObject

from deltaworks.engine.plans import instabilities
from deltaworks.engine.spark.internals import Internals

_TAKEN = frozenset({
    # rows of an input; nothing else may be read
    "RDDScanExec",
    *("ProjectExec", "FilterExec", "ExpandExec", "GenerateExec", "SortExec", "WindowExec", "WindowGroupLimitExec"),
    *("HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec"),
    *("MergingSessionsExec", "UpdatingSessionsExec"),
    *("SortMergeJoinExec", "ShuffledHashJoinExec", "CartesianProductExec"),
    *("UnionExec", "CoalesceExec"),
    *("LocalLimitExec", "GlobalLimitExec", "CollectLimitExec", "TakeOrderedAndProjectExec"),
})  # fmt: skip
"""Nodes that compute one partition from one partition of each child, anew each time. No other is taken."""
_LATELY = "'lately"
"""What `PlanNodes.java` says of one: date'today' is that day in the plan."""
_WHY = {
    "Broadcast": "a broadcast keeps its first rows",
    "Subquery": "a subquery keeps its first result",
    "Reused": "a reused exchange keeps its first rows",
    "Python": "a Python function needs a worker",
    "Pandas": "a Python function needs a worker",
    "Arrow": "a Python function needs a worker",
}


class NotDirectError(Exception):
    """This plan takes Spark's ordinary way; `passes`: for now, it may be another one later."""

    def __init__(self, finding: str, *, passes: bool = False) -> None:
        """Say why."""
        super().__init__(finding)
        self.passes = passes


def refuse_unstable(kinds: Collection[str]) -> None:
    """Raise NotDirectError for clock and chance: parser and optimiser put what they are now into the plan, for ever."""
    for finding, _ in instabilities(kinds):
        raise NotDirectError(finding)
    if _LATELY in kinds:
        raise NotDirectError("a date or a time of these days stands in it, and may be the clock's", passes=True)


def one_partition(plan: JavaObject, inputs: Container[int], spark: Internals) -> JavaObject:
    """The plan without exchanges, over inputs of one partition each; raises NotDirectError where it cannot be.

    `inputs`: the RDDs of the inputs. An exchange would keep its first files, and has nothing to do.
    """
    for node in str(spark.nodes.executed(plan)).splitlines():
        kind, rdd, subqueries = node.split(" ")
        if kind == "RDDScanExec" and int(rdd) not in inputs:
            raise NotDirectError("it reads rows that are no input's: they may be those of the first batch")
        if kind == "ShuffleExchangeExec":
            continue
        if kind not in _TAKEN:
            raise NotDirectError(next(_reasons(kind)))
        if subqueries != "0":
            raise NotDirectError(_WHY["Subquery"])
    return spark.nodes.onePartition(plan)


def _reasons(kind: str) -> Iterator[str]:
    yield from (f"{why} ({kind.removesuffix('Exec')})" for part, why in _WHY.items() if part in kind)
    yield f"{kind.removesuffix('Exec')} is not computed directly"
