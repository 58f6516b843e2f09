"""Recomputations run beside other orders, several of a table at once."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Let one order of an app run at a time, and any number of recomputations beside it."""
    op.execute("""
        drop index commands_one_running;
        create unique index commands_one_running on commands (app) where state = 'running' and kind <> 'recompute';""")
