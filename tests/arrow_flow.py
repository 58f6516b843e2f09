"""A flow driven without a JVM: bronze and silver by their real writers from Arrow, gold by its entries alone."""

from typing import Any

import pyarrow as pa

from deltaworks import catalog
from deltaworks.engine.broker import Edge
from deltaworks.engine.commit import Committer
from deltaworks.engine.entry import Counts
from deltaworks.engine.flow import Flow
from deltaworks.settings import Settings
from tests.flows import Log


class ArrowOwner:
    """Owns an app's tables as a driver does, where no transform has to run."""

    def __init__(self, settings: Settings, app: str) -> None:
        """Open the tables."""
        self.settings, self.app, self.epoch = settings, app, 0
        self.catalog = catalog.load(settings.project)
        self.log = Log()
        self.committer = Committer(spark=None, arrow_bytes_max=2**26, guard=lambda: None)
        self.flow = self.start()

    def start(self) -> Flow:
        """Begin anew, as a restarted driver does."""
        self.epoch += 1
        self.flow = Flow(
            app=self.app, epoch=self.epoch, catalog=self.catalog, settings=self.settings, guard=lambda: None
        )
        self.flow.fence()
        self.flow.begin({topic: {str(p): Edge(0, 10**9) for p in range(2)} for topic in self.flow.topics}, broker=None)
        return self.flow

    def bronze(self) -> None:
        """Take into bronze what was sent since the last time, as one ingest batch."""
        self.take(self.log.batch())

    def take(self, rows: pa.Table) -> None:
        """Take these records into bronze, as one ingest batch."""
        for writer in self.flow.bronze:
            writer.take_arrow(rows, self.committer)

    def silver(self) -> None:
        """Have every table over bronze take all that bronze has."""
        nobody: Any = None  # a session is for what does not fit into memory
        for writer in self.flow.writers:
            while writer.declared.layer == "silver" and writer.behind():
                writer.take(nobody, self.committer)

    def gold(self, name: str) -> None:
        """Have a gold table's entry say that it has taken its inputs as they are; its rows stay as they are."""
        writer: Any = next(writer for writer in self.flow.writers if writer.declared.name == name)
        sources = [self.flow.inputs[source].table for source in writer.declared.inputs]
        versions = {source.name: source.version for source in sources}
        writer.progress.over_tables(versions, ingest_seq=max(source.entry.ingest_seq for source in sources))
        self.committer.mark(writer.table, writer.progress.entry(Counts(read=1, taken=1)))
        writer.progress.committed()
