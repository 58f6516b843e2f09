-- The bank's database. Every statement may be repeated.

create table if not exists public.transfers (
    transfer_id bigint primary key,
    giver       integer not null,
    taker       integer not null,
    amount      numeric(12, 2) not null
);
comment on table public.transfers is 'Money that changes hands: what one account gives the other takes.';
alter table public.transfers replica identity full;

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
alter publication shop_pub set table public.transfers, public.heartbeat;

grant usage on schema public to debezium;
grant select on public.transfers, public.heartbeat to debezium;
grant update on public.heartbeat to debezium;
