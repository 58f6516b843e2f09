"""The control store's one door."""

from deltaworks.control.commands import Commands
from deltaworks.control.heartbeats import Heartbeats
from deltaworks.control.launching import Launching
from deltaworks.control.partitions import ClosedPartitions
from deltaworks.control.unmet import UnmetExpectations

MIGRATE_SECONDS_MAX = 60  # includes the wait for another process that migrates
_LOCK = 0x6465_6C74_6177_6B73  # "deltawks": one migration at a time in the whole database
_REVISIONS = "deltaworks_revision"  # not Alembic's default name: Airflow keeps its own table under that


class Store(Heartbeats, Commands, ClosedPartitions, UnmetExpectations, Launching):
    """The control store at a libpq address (`postgresql://user:password@host:port/database`).

    Blocking; a coroutine calls it in a thread (`asyncio.to_thread`). Calls from several threads take turns on the
    one connection. Every call ends: connecting within 3 s, a statement within 5 s, a silent server within 8 s.
    Raises ControlError "control store: not reachable ..." while the database is away, and works again when it is back.
    """

    def migrate(self) -> None:
        """Bring the tables to this code's revision; twice, or in two processes at once, is harmless.

        Raises ControlError if the database is away or has a revision that this code does not know.
        """
        from deltaworks.control.migrations import upgrade  # SQLAlchemy and Alembic are needed nowhere else

        with self._turn, self._connect(statement_seconds=MIGRATE_SECONDS_MAX) as connection:
            upgrade(connection, lock=_LOCK, revisions=_REVISIONS)
