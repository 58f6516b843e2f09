"""Columns that tables have beside the declared ones, and those that they may gain: names and types. No Spark here.

An app makes tables by it, and what is otherwise is told by it before one starts (`as_declared.py`).
"""

from collections.abc import Mapping

from deltaworks.catalog import Declared
from deltaworks.words.keeping import Append, History, KeptAs, Latest
from deltaworks.words.partitioning import DayOf

OWN: Mapping[type[KeptAs], Mapping[str, str]] = {
    # the ingest batch, the broker's time, the coordinates in Kafka, and how late the row was in microseconds; nothing
    # is late where no event time is declared
    Append: {"_seq": "bigint", "_arrived": "timestamp", "_source": "string", "_late_by": "bigint"},
    # the ingest batch, the change's sequence, and its note (see `partial.py`)
    Latest: {"_seq": "bigint", "_source": "string", "_sent": "string"},
    # the source's time of the change, its offset, the ingest batch and the change's sequence, which unlike elsewhere
    # ends before the offset in Kafka: a change that was delivered twice is one change
    History: {"_at": "timestamp", "_offset": "bigint", "_seq": "bigint", "_source": "string"},
}
"""What is stored with each row, by how the table is kept; the others have nothing of that kind."""
DAY_OF, PART_OF = "_day_of_", "_part_of_"
"""How columns begin by which tables lie in parts."""


def addable(declared: Declared) -> frozenset[str]:
    """Columns that a table may gain without being rebuilt.

    A row over bronze has null where it came before the column; what is computed from many rows would be wrong.
    """
    if not isinstance(declared.table.kept_as, Append | Latest | History):
        return frozenset()
    return frozenset({"_sent", *(column.name for column in declared.columns if column.null)} - {*declared.keys})


def hidden(declared: Declared) -> str | None:
    """The column by which a table lies in parts, made from a declared one; None where it does not."""
    match declared.table.partition_by:
        case None:
            return None
        case DayOf(column=column):
            return f"{DAY_OF}{column}"
        case column:
            return f"{PART_OF}{column}"
