"""Suites as row rules: what each row of a stream must hold, judged as Great Expectations would, without Spark.

And the door to Great Expectations itself, for a notebook: `context()` and `rows()`.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltaworks.validation.notebook import DataFrame, EphemeralDataContext

__all__ = ["context", "rows"]


def context(project: Path | None = None) -> "EphemeralDataContext":
    """Open a project as a context of Great Expectations: see `deltaworks/validation/notebook.py`.

    Loading it takes seconds, which is why it is not loaded before.
    """
    from deltaworks.validation.notebook import context as opened

    return opened(project)


def rows(table: str, project: Path | None = None) -> "DataFrame":
    """The newest version of a table, as a batch of that context; raises LakeError where there is none."""
    from deltaworks.validation.notebook import rows as newest

    return newest(table, project)
