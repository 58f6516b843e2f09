"""Whether a closed partition has been announced, so that it is announced once."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the time of announcement and an index on what waits for it."""
    op.execute("""
        alter table closed_partitions add column announced_at timestamptz;
        create index closed_partitions_unannounced on closed_partitions (table_name, partition)
            where announced_at is null;
    """)
