"""Faults of the source database and of what captures it."""

import time
from typing import Any

import psycopg
from psycopg import sql
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from deltaworks.errors import StackError
from deltaworks.local import connect, doctor, source, stack
from deltaworks.local.chaos import parts
from deltaworks.local.chaos.fault import Lost, Scene

_ROWS = 50
_SNAPSHOT_SECONDS_MAX = 3.0
_TOUCH = sql.SQL("update {table} set {key} = {key} where ctid in (select ctid from {table} limit {rows})")


def needs_source(scene: Scene) -> str:
    """Why these faults cannot be done."""
    return "" if connect.connector_of(scene.settings) else "the project declares no connector"


def kill_in_snapshot(scene: Scene) -> Lost:
    """Have the source read anew, and kill Connect while it does."""
    _read_anew(scene)
    until, amid = time.monotonic() + _SNAPSHOT_SECONDS_MAX, False
    while not amid and time.monotonic() < until:  # as soon as its first rows are recorded; a small source has no more
        amid = connect.in_snapshot(scene.settings)
    parts.kill(scene, "connect")
    scene.say("Connect was in its snapshot" if amid else "Connect may have been through with its snapshot")
    return {}


def drop_slot(scene: Scene) -> Lost:
    """Drop the replication slot while Connect is away; then read the source anew, as the doctor says."""
    name = _config(scene)["slot.name"]
    try:
        stack.hold(scene.settings, "connect")
        with _connected(scene, "source_admin") as connection:
            connection.execute("select pg_drop_replication_slot(%s)", (name,))
        scene.say(f"slot {name} was dropped")
        scene.wait(scene.seconds(2, 6))  # what is written now is in no slot
    finally:
        stack.up(scene.settings, parts=("connect",), wait_for=())
    told: list[str] = []

    def named() -> bool:
        found = [one for one in doctor.examine(scene.settings) if one.check == "slot" and one.verdict == "fail"]
        told[:] = [f"{one.finding}. {one.next_step}" for one in found if "source resnapshot" in one.next_step]
        return bool(told)

    scene.until(named, "the doctor names the slot")
    scene.say(f"the doctor says: {told[0]}")
    after = _read_anew(scene)
    scene.say(f'ran "deltaworks source resnapshot": the source is read as {after}')
    return {}


def change_schema(scene: Scene) -> Lost:
    """Add a column, write rows that have it, drop it, write again."""
    table = _table(scene)
    names = {"table": sql.Identifier(*table.split(".")), "column": sql.Identifier("chaos_column")}
    with _connected(scene, "shop") as connection:
        key = _key(connection, table)
        touch = _TOUCH.format(**names, key=sql.Identifier(key), rows=_ROWS)
        connection.execute(
            sql.SQL("alter table {table} add column if not exists {column} text default 'new'").format(**names)
        )
        try:
            connection.execute(touch)
            scene.say(f"{table} has one column more, and {_ROWS} of its rows were written again")
            scene.wait(scene.seconds(2, 8))
        finally:
            connection.execute(sql.SQL("alter table {table} drop column {column}").format(**names))
        connection.execute(touch)
    return {}


def wal_position(scene: Scene) -> int:
    """How far the source has written."""
    with _connected(scene, "source_admin") as connection:
        row = connection.execute("select (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
    assert row is not None, "a function's result"
    return int(row[0])


def _read_anew(scene: Scene) -> str:
    """Begin another life of the source; gives its prefix."""
    scene.until(lambda: _answers(scene), "Connect answers")
    _connected(scene, "source_admin").close()
    return source.resnapshot(scene.settings)[1].prefix


def _answers(scene: Scene) -> bool:
    return connect.ask(scene.settings, "GET", "/")[0] == 200


def _config(scene: Scene) -> dict[str, str]:
    found = connect.connector_of(scene.settings)
    if found is None:
        raise StackError("source", "the project declares no connector", "See [source] in deltaworks.toml")
    return found[1]


def _table(scene: Scene) -> str:
    """A captured table; not the heartbeat's."""
    config = _config(scene)
    shown = config.get("snapshot.include.collection.list") or config["table.include.list"]
    return scene.chance.choice([name.strip() for name in shown.split(",")])


def _key(connection: "psycopg.Connection[Any]", table: str) -> str:
    query = """
        select a.attname from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
        where i.indrelid = %s::regclass and i.indisprimary limit 1"""
    row = connection.execute(query, (table,)).fetchone()
    if row is None:
        raise StackError(table, "has no primary key", "Capture tables that have one")
    return str(row[0])


@retry(  # another fault may have just ended the server
    retry=retry_if_exception_type(psycopg.OperationalError),
    stop=stop_after_delay(60),
    wait=wait_fixed(0.5),
    reraise=True,
)
def _connected(scene: Scene, role: str) -> "psycopg.Connection[Any]":
    return psycopg.connect(scene.settings.dsn(role), connect_timeout=5, autocommit=True)
