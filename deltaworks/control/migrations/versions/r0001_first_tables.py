"""Apps, leases, heartbeats, commands, closed partitions."""

from alembic import op

revision = "0001"
down_revision = None

_TABLES = """
create table apps (
    name text primary key check (name ~ '^[a-z][a-z0-9_]{0,62}$'),
    desired text not null default 'stopped' check (desired in ('running', 'stopped')),
    desired_by text,
    desired_at timestamptz not null default now()
);

create table leases (
    app text primary key references apps,
    owner text not null check (owner <> ''),
    epoch bigint not null check (epoch > 0),
    until timestamptz not null,
    pid bigint not null,
    process_started text not null,
    host text not null,
    acquired_at timestamptz not null default now(),
    released_at timestamptz,
    call uuid not null
);
comment on column leases.epoch is 'only rises, also over a release: what a driver of an older epoch wants is refused';
comment on column leases.call is 'the acquire() that wrote the row, so that it can be sent again';

create table heartbeats (
    app text primary key references apps,
    epoch bigint not null,
    at timestamptz not null,
    state text not null check (state in ('starting', 'running', 'draining', 'stopped', 'failed')),
    progress jsonb not null check (jsonb_typeof(progress) = 'object')
) with (fillfactor = 50);  -- written every second: leaves room for updates within the page

create table commands (
    id bigint generated always as identity primary key,
    app text not null references apps,
    table_name text,
    kind text not null check (kind ~ '^[a-z][a-z0-9_]{0,62}$'),
    arguments jsonb not null check (jsonb_typeof(arguments) = 'object'),
    state text not null default 'queued' check (state in ('queued', 'running', 'done', 'failed', 'cancelled')),
    epoch bigint,
    progress jsonb not null default '{}' check (jsonb_typeof(progress) = 'object'),
    result jsonb check (jsonb_typeof(result) = 'object'),
    error text,
    requested_by text not null check (requested_by <> ''),
    reason text not null check (reason <> ''),
    requested_at timestamptz not null default now(),
    started_at timestamptz,
    finished_at timestamptz,
    call uuid not null unique,
    taken_by uuid
);
comment on column commands.call is 'the send() that wrote the row, so that it can be sent again';
comment on column commands.taken_by is 'the take() that claimed the row, so that it can be sent again';
create unique index commands_one_running on commands (app) where state = 'running';
create index commands_queue on commands (app, id) where state = 'queued';

create table closed_partitions (
    table_name text not null,
    partition text not null,
    version bigint not null,
    closed_at timestamptz not null default now(),
    primary key (table_name, partition)
);
"""


def upgrade() -> None:
    """Create the tables."""
    op.execute(_TABLES)
