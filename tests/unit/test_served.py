"""Analysts ask the copies in the serving database: one statement that reads, whatever its text says."""

import secrets

import psycopg
import pytest
from psycopg import sql

from deltaworks import served
from deltaworks.errors import QueryError
from deltaworks.local.postgres import only_read
from deltaworks.served import ask
from tests.scratch_postgres import ScratchPostgres

PASSWORD = secrets.token_urlsafe(16)
ROLE = "reader_of_one_test"


@pytest.fixture
def reader(postgres: ScratchPostgres, request: pytest.FixtureRequest) -> str:
    """Address of a database with one table, for a role that may read it and nothing else."""
    owner = postgres.database(f"served_{abs(hash(request.node.nodeid))}")
    with psycopg.connect(owner, autocommit=True) as connection:
        if connection.execute("select from pg_roles where rolname = %s", (ROLE,)).fetchone() is None:
            connection.execute(sql.SQL("create role {} login").format(sql.Identifier(ROLE)))
        connection.execute(sql.SQL("alter role {} password {}").format(sql.Identifier(ROLE), sql.Literal(PASSWORD)))
        connection.execute("create table people as select n as id, 'x' || n as name from generate_series(1, 3) n")
        connection.execute(sql.SQL("grant select on people to {}").format(sql.Identifier(ROLE)))
    only_read(owner)
    return psycopg.conninfo.make_conninfo(owner, user=ROLE, password=PASSWORD)


def state(postgres: ScratchPostgres, dsn: str) -> list[object]:
    """What a statement might have changed: roles, their settings, large objects, tables and their rows."""
    found: list[object] = []
    database = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    with psycopg.connect(postgres.dsn_of(str(database))) as connection:
        for question in (
            "select rolname, rolpassword, rolvaliduntil from pg_authid order by 1",
            "select * from pg_db_role_setting order by 1, 2",
            "select oid from pg_largeobject_metadata order by 1",
            "select oid::regclass::text from pg_class where relnamespace = 'public'::regnamespace order by 1",
            "select * from people order by 1",
        ):
            found += [question, *connection.execute(question).fetchall()]
    return found


SEVERAL = (
    "rollback; begin read write; alter role reader_of_one_test password 'stolen'",
    "commit; begin read write; select lo_create(0)",
    "select 1; select 2",
    "select 1;; rollback; alter role reader_of_one_test set work_mem = '1GB'",
)
WRITING = (
    "alter role reader_of_one_test password 'stolen'",
    "alter role reader_of_one_test set statement_timeout = 0",
    "select lo_create(0)",
    "select lo_from_bytea(0, 'x')",
    "create temp table mine as select 1",
    "create table mine (a int)",
    "insert into people values (4, 'x')",
    "with gone as (delete from people returning *) select * from gone",
    "select * from people for update",
    "do $$ begin execute 'set transaction read write'; perform lo_create(0); end $$",
    "select set_config('transaction_read_only', 'off', false), lo_create(0)",
    "copy people to program 'true'",
    "select pg_read_file('postgresql.conf')",
    "prepare transaction 'kept'",
    "select nextval('people_seq')",
    "select pg_logical_emit_message(false, 'p', repeat('x', 1000000))",
    "select pg_terminate_backend(pid) from pg_stat_activity where usename = current_user and pid <> pg_backend_pid()",
    "select pg_notify('x', 'y')",
    "select 1 \0; drop table people",
    "select '\ud800'",
)


@pytest.mark.parametrize("text", [*SEVERAL, *WRITING])
def test_nothing_is_changed_whatever_is_said(postgres: ScratchPostgres, reader: str, text: str) -> None:
    """Several statements are no statement, and one of them runs in a transaction that only reads."""
    before = state(postgres, reader)

    with pytest.raises(QueryError) as refused:
        ask(reader, text)

    assert "\n" not in str(refused.value)
    assert state(postgres, reader) == before
    assert ask(reader, "select count(*) as n from people").dicts() == [{"n": 3}]


@pytest.mark.parametrize("text", SEVERAL)
def test_several_statements_are_named(reader: str, text: str) -> None:
    """Not in the words of a protocol that nobody here has heard of."""
    with pytest.raises(QueryError, match="query: holds more than one statement. Give exactly one"):
        ask(reader, text)


@pytest.mark.parametrize("text", ["rollback", "commit", "set statement_timeout = 0", "begin read write", "listen x"])
def test_what_gives_no_rows_is_refused(postgres: ScratchPostgres, reader: str, text: str) -> None:
    """Alone these change nothing beyond their own connection, which ends."""
    before = state(postgres, reader)

    with pytest.raises(QueryError, match="gives no rows. Write a select"):
        ask(reader, text)

    assert state(postgres, reader) == before


def test_rows_left_out_are_told(reader: str) -> None:
    """With rows_max the answer says whether there were more."""
    cut = ask(reader, "select * from people order by id", rows_max=2)
    whole = ask(reader, "select * from people order by id;", rows_max=3)
    none = ask(reader, "select id, name from people where false")

    assert (cut.rows, cut.more) == ([(1, "x1"), (2, "x2")], True)
    assert (len(whole.rows), whole.more) == (3, False)
    assert ([column.name for column in none.columns], none.rows) == (["id", "name"], [])


def test_time_and_bytes_are_bounded(reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that takes too long is stopped; an answer that is too large is not collected."""
    monkeypatch.setattr(served, "BYTES_MAX", 1_000_000)

    with pytest.raises(QueryError, match="not answered after 0.5 s"):
        ask(reader, "select count(*) from generate_series(1, 1000000000000)", timeout_seconds=0.5)
    with pytest.raises(QueryError, match="its answer is larger than 1,000,000 bytes"):
        ask(reader, "select repeat('x', 1000) from generate_series(1, 100000)")
    with pytest.raises(QueryError, match="not answered after 0.5 s"):
        ask(reader, "select set_config('statement_timeout', '0', false), pg_sleep(60)", timeout_seconds=0.5)


BY_ANOTHER_CLIENT = (
    "select lo_create(0)",
    "select lo_from_bytea(0, 'x')",
    "create temp table mine as select 1",
    "create table mine (a int)",
    "insert into people values (4, 'x')",
    "select pg_logical_emit_message(false, 'p', 'x')",
    "select pg_terminate_backend(1)",
    "alter role postgres password 'stolen'",
)


@pytest.mark.parametrize("text", BY_ANOTHER_CLIENT)
def test_the_role_itself_has_no_right_to_write(postgres: ScratchPostgres, reader: str, text: str) -> None:
    """Also in a transaction that may write, asked by a client that is not ours."""
    before = state(postgres, reader)

    with psycopg.connect(reader) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(text.encode())

    assert state(postgres, reader) == before
