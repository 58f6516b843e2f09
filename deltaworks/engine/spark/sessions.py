"""Results that are sessions: no condition and no join may be applied to them before they are put together.

Which session a row is in is known when rows are put together only. The optimiser of Spark 4.2 applies conditions on a
session, and semi-joins with its key, to each row as if it were a session of its own: rows come out wrong, without an
error. What a transform itself asks of its sessions is not seen from here: it has to be asked in a later table.
"""

import re
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltaworks.engine.spark.internals import execution_of, text_of

_SESSION = re.compile(r"\bsession_window#\d")
"""What Spark calls the column that it groups by, whatever the transform calls it afterwards."""


def of_sessions(made: DataFrame) -> bool:
    """Whether it groups by `session_window`. Nothing is planned: of no rows there would be nothing left to be seen."""
    return _SESSION.search(text_of(execution_of(made).analyzed())) is not None


def put_together(made: DataFrame) -> DataFrame:
    """The same rows; the optimiser moves no condition and no join past what is observed.

    The number that is observed is looked at by nobody. Its name is new: in one plan each has to be.
    """
    return made.observe(f"sessions {uuid4().hex}", F.count(F.lit(1)))
