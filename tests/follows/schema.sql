-- The application's database. Every statement may be repeated.

create table if not exists public.follows (
    member text,
    shop   text,
    since  timestamptz not null default now(),
    primary key (member, shop)
);
comment on table public.follows is 'Who follows which shop, as of now.';

create table if not exists public.shops (
    shop   text primary key,
    name   text not null,
    visits integer not null,
    city   text
);
comment on table public.shops is 'Its columns are changed while its changes are read.';

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
alter publication shop_pub set table public.follows, public.shops, public.heartbeat;

grant usage on schema public to debezium;
grant select on public.follows, public.shops, public.heartbeat to debezium;
grant update on public.heartbeat to debezium;
