"""Which functions only pick columns of an input, as most `keys_from` do: rows need no plan for that."""

from collections.abc import Collection, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame

from deltaworks.engine.spark.internals import Internals, execution_of

Picked = tuple[str, list[str]]
"""Of which input, and which of its columns, in the order of the result."""
_LEAF, _PROJECT, _COLUMN, _NAMED = "LogicalRDD", "Project", "AttributeReference", "Alias"


def picked(
    made: DataFrame, kinds: Collection[str], inputs: Mapping[int, str], schemas: Mapping[str, pa.Schema],
    spark: Internals,
) -> Picked | None:  # fmt: skip
    """What a frame picks, None where it does anything else; `kinds` of its nodes, `inputs` by their RDD's number.

    `schemas`: of the inputs, by their names.
    """
    if not {_LEAF, _PROJECT} <= set(kinds) <= {_LEAF, _PROJECT, _COLUMN, _NAMED}:
        return None
    rdd, *places = (int(one) for one in str(spark.nodes.picked(execution_of(made).analyzed())).split(" "))
    name = inputs.get(rdd)
    return (name, [schemas[name].names[at] for at in places]) if name is not None and places else None
