"""The control store's tables, as Alembic revisions in plain SQL; only forward."""

import psycopg
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from deltaworks.errors import ControlError

_PLACE = "control store"


def upgrade(connection: "psycopg.Connection[tuple[object, ...]]", *, lock: int, revisions: str) -> None:
    """Run the revisions that are missing, all in one transaction, alone under the advisory lock `lock`.

    `revisions` is the table that remembers what has run. Raises ControlError.
    """
    connection.autocommit = False  # SQLAlchemy leaves beginning a transaction to the driver
    engine = create_engine("postgresql+psycopg://", creator=lambda: connection, poolclass=StaticPool)
    config = Config(attributes={"revisions": revisions})
    config.set_main_option("script_location", f"{__name__.rpartition('.')[0]}:migrations")
    try:
        with engine.begin() as session:
            session.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": lock})
            config.attributes["connection"] = session
            command.upgrade(config, "head")
    except CommandError as error:
        raise ControlError(_PLACE, f"its tables are newer than this code ({error})", "Update Deltaworks") from None
    except DBAPIError as error:
        raise ControlError(_PLACE, f"cannot be migrated ({_first_line(error)})", "Mend that and run it again") from None
    finally:
        engine.dispose()


def _first_line(error: DBAPIError) -> str:
    """Return what the server said; its own text, which holds neither the address nor a password."""
    return (str(error.orig).splitlines() or [type(error.orig).__name__])[0]
