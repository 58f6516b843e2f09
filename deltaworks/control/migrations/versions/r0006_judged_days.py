"""Whether a closed day was given to its table's validation, and what that said of it."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add when a day was given to the validation, and its verdict; days that are announced need none."""
    op.execute("""
        alter table closed_partitions add column asked_at timestamptz, add column verdict text
            check (verdict in ('passed', 'failed', 'unknown', 'released')),
            add column reason text, add column judged_at timestamptz;
        update closed_partitions set asked_at = announced_at;
    """)
