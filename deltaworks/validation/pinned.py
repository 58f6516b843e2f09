"""A version of a table as Great Expectations is given it: the declared columns, whatever is committed meanwhile."""

from dataclasses import dataclass

import deltalake
from pyspark.sql import DataFrame, SparkSession

from deltaworks.catalog import Declared
from deltaworks.engine.datasets import dataset_of
from deltaworks.engine.folders import folder_of
from deltaworks.errors import LakeError
from deltaworks.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """The rows of a version."""

    version: int
    rows: DataFrame


def pinned(spark: SparkSession, settings: Settings, declared: Declared) -> Pinned:
    """The newest version of a table; raises LakeError where there is none.

    Few rows are read by Arrow and handed over, which saves Spark the reading of the log; of many it reads the files.
    Columns of the engine's own are left out: a suite speaks of the declared ones.
    """
    folder = folder_of(declared.name, settings.lake)
    if not deltalake.DeltaTable.is_deltatable(str(folder)):
        raise LakeError(declared.name, "has no rows yet", f'Start its app: "deltaworks app start {declared.table.app}"')
    table = deltalake.DeltaTable(str(folder))
    there = {field.name for field in table.schema().fields}
    names = [column.name for column in declared.columns]
    if lacking := [name for name in names if name not in there]:
        raise LakeError(
            declared.name, f"lacks the declared column {lacking[0]}", f"Run: deltaworks rebuild {declared.name}"
        )
    version, size = table.version(), sum(table.get_add_actions()["size_bytes"].to_pylist())
    if size <= settings.arrow_bytes_max:
        rows = spark.createDataFrame(dataset_of(table).to_table(columns=names))
    else:
        rows = spark.read.format("delta").option("versionAsOf", version).load(str(folder)).select(*names)
    return Pinned(version=version, rows=rows)
