"""What supervisors ask of the agent that starts drivers on another host, and what it tells of them."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the requests, and of each app what is known of its driver where it runs."""
    op.execute("""
        create table launch_requests (
            id bigint generated always as identity primary key,
            app text not null references apps (name) on delete cascade,
            kind text not null,
            arguments jsonb not null default '{}',
            call uuid not null unique,
            asked_at timestamptz not null default now(),
            taken_at timestamptz,
            taken_by uuid,
            answer jsonb,
            error jsonb
        );
        create index launch_requests_open on launch_requests (id) where taken_at is null;
        create table drivers (
            app text primary key references apps (name) on delete cascade,
            host text not null,
            told_at timestamptz not null,
            running jsonb,
            lingering jsonb,
            launch jsonb,
            log_bytes bigint not null
        );""")
