"""What `latest` and `history` have in common: their changes are placed by a sequence, and ends are remembered."""

from contextlib import AbstractContextManager
from typing import Any

from pyspark.sql import SparkSession

from deltaworks.engine.commit import Committer, Rows
from deltaworks.engine.datasets import dataset_of
from deltaworks.engine.lake import OwnedTable
from deltaworks.engine.parsing.json import BY_ARRIVAL
from deltaworks.engine.writers import states
from deltaworks.engine.writers.over_bronze import OverBronze
from deltaworks.engine.writers.writer import Turn
from deltaworks.errors import LakeError
from deltaworks.words.keeping import History, Latest
from deltaworks.words.reading import Json


class Sequenced(OverBronze):
    """Compares what comes with what is there by its sequence, so both have to be placed in the same way."""

    def __init__(self, *args: Any, deleted: OwnedTable, **given: Any) -> None:
        """As every writer over bronze; `deleted` remembers what ended without a row."""
        super().__init__(*args, **given)
        self.deleted = deleted
        kept = self.declared.table.kept_as
        assert isinstance(kept, Latest | History)
        self.by = kept.by
        self._looked = False

    def take(self, spark: SparkSession | None, committer: Committer) -> Turn | None:
        """As every writer over bronze; raises LakeError where the rows that are there were placed in another way."""
        if not self._looked:
            self._refuse_other_places()
            self._looked = True
        return super().take(spark, committer)

    def _refuse_other_places(self) -> None:
        of_rows = self.parser.places
        of_ends = BY_ARRIVAL if isinstance(self.parser.reads, Json) else of_rows  # by= places no end
        for table, what, declared in ((self.table, "rows", of_rows), (self.deleted, "deletions", of_ends)):
            found = dataset_of(table.delta).head(1, columns=["_source"])["_source"].to_pylist()
            there = {states.place(source) for source in found}
            if there - {declared}:
                finding = f"its {what} are placed {there.pop()}, declared is {declared}"
                raise LakeError(self.declared.name, finding, f'Run "deltaworks rebuild {self.declared.name}"')

    def _placed(self, parsed: Rows) -> AbstractContextManager[Rows]:
        """A database's changes have their sequences, states by JSON get them."""
        if isinstance(self.parser.reads, Json):
            return states.placed(parsed, self.declared.keys)
        return super()._placed(parsed)
