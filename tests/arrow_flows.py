"""The flow of an app without a JVM: what is small goes from Arrow to the lake, and Spark has nothing to do."""

from typing import Any

import pyarrow as pa

from deltaworks.engine.commit import Committer
from deltaworks.engine.writers.over_bronze import OverBronze
from deltaworks.settings import Settings
from deltaworks.words.keeping import Raw
from tests.flows import Log, Owner


class ArrowOwner(Owner):
    """An owner whose tables over bronze are driven by hand; tables over tables need a transform, and so Spark."""

    def __init__(self, settings: Settings, app: str) -> None:
        """Open the first flow."""
        none: Any = None
        super().__init__(none, settings, app)

    def take(self, rows: pa.Table) -> None:
        """One micro-batch: bronze, then every table over it."""
        committer = Committer(spark=None, arrow_bytes_max=self.settings.arrow_bytes_max, guard=self._guard)
        for writer in self.flow.bronze:
            writer.take_arrow(rows, committer)
        self._turn(committer)

    def go_on(self, ordered: str) -> None:
        """As an owner without Spark: that table alone takes rows."""
        self.flow.take_slice(ordered, None)

    def catch_up(self, log: Log) -> None:
        """After a restart: what bronze lacks comes from the log, what the tables lack from bronze."""
        self.take(log.beyond(self.starts))

    def verdicts(self) -> set[str]:
        """What the ledger says of bronze and of the tables over it: those above take nothing here."""
        raw = {name for name, one in self.catalog.tables.items() if isinstance(one.table.kept_as, Raw)}
        above = {name for name, one in self.catalog.tables.items() if not raw.issuperset(one.inputs)}
        return {sheet.verdict for sheet in self.ledger().sheets() if sheet.table not in above}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table's declared columns, sorted."""
        found = next(one for one in self.flow.tables() if one.name == table)
        found.reopen()
        shown = [name for name in found.schema.names if not name.startswith("_")]
        return sorted(found.read(shown).to_pylist(), key=str)

    def _turn(self, committer: Committer) -> None:
        none: Any = None
        for writer in self.flow.writers:
            while isinstance(writer, OverBronze) and writer.behind():
                writer.take(none, committer)
        for source in self.flow.inputs.values():
            source.fresh = None
