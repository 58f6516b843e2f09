"""Why an order was withdrawn stands beside who did it."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the reason."""
    op.execute("alter table commands add column cancel_reason text;")
