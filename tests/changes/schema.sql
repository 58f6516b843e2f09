-- Source tables for tests of change data capture. Every statement may be repeated.

create table if not exists public.plain (
    id     bigint primary key,
    n      integer not null,
    amount numeric(12, 2),
    note   text not null,
    at     timestamptz not null
);
comment on table public.plain is 'Default replica identity, one key.';

create table if not exists public.pairs (
    a integer,
    b text,
    n integer not null,
    primary key (a, b)
);
comment on table public.pairs is 'Default replica identity, a composite key.';

create table if not exists public.wide (
    id   bigint primary key,
    n    integer not null,
    body text not null
);
comment on table public.wide is 'Full replica identity; bodies are too large for a page and stored out of line.';
alter table public.wide replica identity full;
alter table public.wide alter column body set storage external;

create table if not exists public.documents (
    id   bigint primary key,
    n    integer not null,
    body text not null
);
comment on table public.documents is
    'Default replica identity; an update that leaves a large body alone does not send it.';
alter table public.documents alter column body set storage external;

create table if not exists public.heartbeat (
    id integer primary key check (id = 1),
    ts timestamptz not null
);
insert into public.heartbeat (id, ts) values (1, now()) on conflict (id) do nothing;

do $$
begin
    if not exists (select from pg_catalog.pg_publication where pubname = 'shop_pub') then
        create publication shop_pub;
    end if;
end
$$;
alter publication shop_pub set table
    public.plain, public.pairs, public.wide, public.documents, public.heartbeat;

grant usage on schema public to debezium;
grant select on public.plain, public.pairs, public.wide, public.documents, public.heartbeat to debezium;
grant update on public.heartbeat to debezium;
