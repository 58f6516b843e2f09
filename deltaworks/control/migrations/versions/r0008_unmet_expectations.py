"""Critical expectations that a validation found unmet, and for which their table is suspended."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add them."""
    op.execute("""
        create table unmet_expectations (
            table_name text not null,
            expectation text not null,
            reason text not null,
            since timestamptz not null default now(),
            primary key (table_name, expectation)
        );""")
