"""Which functions only pick columns of an input, as most `keys_from` do: rows need no plan for that."""

from collections.abc import Collection, Mapping

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from deltaworks.engine.spark.internals import execution_of, listed, rdd_id

Picked = tuple[str, list[str]]
"""Of which input, and which of its columns, in the order of the result."""
_LEAF, _PROJECT, _COLUMN, _NAMED = "LogicalRDD", "Project", "AttributeReference", "Alias"


def picked(made: DataFrame, kinds: Collection[str], inputs: Mapping[int, str]) -> Picked | None:
    """What a frame picks, None where it does anything else; `kinds` of its nodes, `inputs` by their RDD's number."""
    if not {_LEAF, _PROJECT} <= set(kinds) <= {_LEAF, _PROJECT, _COLUMN, _NAMED}:
        return None
    plan, projects = execution_of(made).analyzed(), []
    while plan.getClass().getSimpleName() == _PROJECT:
        projects.append(plan)
        plan = plan.child()
    name = inputs.get(rdd_id(plan))
    columns = {_id(column): str(column.name()) for column in listed(plan.output())}
    for project in reversed(projects):
        for column in listed(project.projectList()):
            source = column.child() if column.getClass().getSimpleName() == _NAMED else column
            columns[_id(column)] = columns[_id(source)]
    wanted = [columns[_id(column)] for column in listed(projects[0].output())]
    return (name, wanted) if name is not None and wanted else None


def _id(column: JavaObject) -> int:
    return int(column.exprId().id())
