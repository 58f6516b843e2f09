"""Columns declared `null=False`: the engine judges them, so that hidden rows and side tables stay possible."""

import pyarrow as pa

from deltaworks.catalog import Declared
from deltaworks.errors import LakeError


def nullable_keys(declared: Declared) -> frozenset[str]:
    """Key columns that may be null and must be compared null-safe."""
    return frozenset(c.name for c in declared.table.columns if c.null and c.name in declared.keys)


def refuse_nulls(declared: Declared, rows: pa.Table) -> None:
    """Raise LakeError when a transform gave null where the table declares none."""
    for column in declared.table.columns:
        if not column.null and column.name in rows.column_names and rows[column.name].null_count:
            raise LakeError(
                f"{declared.name}.{column.name}",
                f"the transform gave null in {rows[column.name].null_count} row(s), declared null=False",
                "Mend the transform, or declare the column nullable",
            )
