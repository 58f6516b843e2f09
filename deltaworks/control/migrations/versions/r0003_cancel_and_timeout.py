"""An order that runs can be withdrawn between two of its steps, and may have a time after which it is given up."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add who withdrew an order, when, and how long it may take."""
    op.execute("""
        alter table commands
            add column timeout_seconds double precision check (timeout_seconds > 0),
            add column cancelled_by text,
            add column cancel_asked_at timestamptz;
        comment on column commands.cancel_asked_at is
            'the order was withdrawn; if it runs, its owner ends it after the step that it is in';
    """)
