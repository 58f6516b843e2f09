"""Work on drawn shapes, kill Connect twice, read tables beside the stream, and hold the lake against the source."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import deltalake
import psycopg
from confluent_kafka import Consumer, TopicPartition
from psycopg import sql

from deltaworks import catalog
from deltaworks.engine.checker import Picture, check
from deltaworks.local import connect, signals, stack
from deltaworks.local.captured import gaps
from deltaworks.settings import Settings
from tests.chaos import changes
from tests.chaos.workload import OF_ROWS, Workload, seconds_max
from tests.running_stack import wait_until
from tests.shapes.drawn import tables
from tests.shapes.shape import Shape

Row = dict[str, Any]
_SECONDS_A_SHAPE = 30.0  # its two tables take every batch; the rest is for a busy machine
_TURNS_MAX = 9
"""So often tables are read beside the stream until a row comes: those that are changed meanwhile are left out."""


def work(
    settings: Settings, shapes: Sequence[Shape], *, chance: Random, transactions: int, pause: float, say: Any = print
) -> list[str]:
    """Work before, in and after the snapshot; what differs at the end."""
    dsn = settings.source_dsn()
    with Workload(dsn, chance=chance, tables=shapes, pause=pause, steps=OF_ROWS) as going:
        going.wait(transactions // 3)
        stack.up(settings, parts=("connect",), wait_for=())
        wait_until(lambda: changes.end(settings) > 0, what="the first rows", seconds_max=changes.SECONDS_MAX)
        changes.kill_connect(settings)
        say("Connect killed after the first rows")
        wait_until(lambda: changes.streams(settings), what="streamed changes", seconds_max=changes.SECONDS_MAX)
        able = [f"public.{shape.name}" for shape in shapes if shape.keyed != "nothing" and not shape.generated]
        some = chance.sample(able, (len(able) + 1) // 2)
        asked = signals.read_beside(settings, some, signal="amidst")
        going.wait(transactions // 3)
        changes.kill_connect(settings)
        say("Connect killed in the stream")
        going.wait(transactions // 3)
        read: Counter[str] = Counter()
        for turn in range(_TURNS_MAX):
            asked = signals.read_beside(settings, some, signal=f"amidst-{turn}") if turn else asked
            _wait_read(settings, shapes, asked)
            if read := read_rows(settings, since=0):
                break
        say(f"read beside the stream: {dict(read)}")
    going.must_go_on()
    say(f"done: {dict(going.done)}")
    leave_rows(dsn, shapes, chance)
    changes.settle(settings, dsn)
    since = changes.end(settings)
    _wait_read(settings, shapes, signals.read_beside(settings, able, signal="at rest"))
    unread = [] if read else [f"no row was read beside the stream while it went on, in {_TURNS_MAX} turns"]
    unread += _unread(settings, shapes, able, since)
    seconds = changes.SECONDS_MAX + _SECONDS_A_SHAPE * len(shapes) + seconds_max(transactions)
    code = changes.driver(settings).wait(timeout=seconds)
    assert code == 0, f"the driver ended with {code}: see {settings.logs / 'changes.log'}"
    return [*unread, *_captured(settings, shapes), *differences(settings, shapes)]


def _wait_read(settings: Settings, shapes: Sequence[Shape], asked: signals.Asked) -> None:
    """Until the connector has read what it was asked for: on a busy machine that takes longer than the work."""
    seconds = changes.SECONDS_MAX + _SECONDS_A_SHAPE * len(shapes)
    wait_until(lambda: signals.over(settings, asked), what="tables read beside the stream", seconds_max=seconds)


def read_rows(settings: Settings, *, since: int) -> Counter[str]:
    """How many rows of each table were read beside the stream, by the topic from this offset on to its end now."""
    end = changes.end(settings)  # while the work goes on there is always one more
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka, "group.id": "shapes", "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 3,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(changes.TOPIC, 0, since)])
    found: Counter[str] = Counter()
    while (message := consumer.poll(30)) is not None and message.error() is None and (message.offset() or 0) < end:
        source = (json.loads(message.value() or b"null") or {}).get("source", {})
        if source.get("snapshot") == "incremental":
            found[f"{source['schema']}.{source['table']}"] += 1
    consumer.close()
    return found


def _unread(settings: Settings, shapes: Sequence[Shape], able: Sequence[str], since: int) -> Iterator[str]:
    """Where not each row of a table was read beside the stream, now that nobody works on any."""
    read = read_rows(settings, since=since)
    for shape in shapes:
        there, name = len(_there(settings.source_dsn(), shape)), f"public.{shape.name}"
        if name in able and read[name] != there:
            yield f"{shape.name} ({_told(shape)}): {read[name]} of {there} rows were read beside the stream"


def leave_rows(dsn: str, shapes: Sequence[Shape], chance: Random) -> None:
    """A row in each table, one of which is changed: whatever chance has left there, something is compared."""
    with psycopg.connect(dsn) as connection:
        for shape in shapes:
            if connection.execute(sql.SQL("select from {} limit 1").format(shape.ident)).fetchone() is None:
                row = dict(zip(shape.keys, shape.key(0), strict=True)) | shape.values(chance)
                connection.execute(
                    sql.SQL("insert into {} ({}) values ({})").format(
                        shape.ident,
                        sql.SQL(", ").join(map(sql.Identifier, row)),
                        sql.SQL(", ").join([sql.Placeholder()] * len(row)),
                    ),
                    tuple(row.values()),
                )
        changed = chance.choice(shapes)
        connection.execute(
            sql.SQL("update {table} set {value} = {value} where ctid = (select ctid from {table} limit 1)").format(
                table=changed.ident, value=sql.Identifier(changed.values_of[0].name)
            )
        )


def _captured(settings: Settings, shapes: Sequence[Shape]) -> Iterator[str]:
    """What `doctor` finds: only that no index keeps apart rows of tables without any, and numerics read as texts."""
    found = connect.connector_of(settings)
    assert found is not None
    declared = {name: one.table for name, one in catalog.load(settings.project).tables.items()}
    loose = {f"silver.{name}" for shape in shapes if shape.keyed == "nothing" for name in tables(shape)}
    texts = {
        f"silver.{name}.{one.name}"
        for shape in shapes
        for one in shape.columns
        if one.kind.sql == "numeric"
        for name in tables(shape)
    }
    with psycopg.connect(settings.source_dsn()) as connection:
        told = [*gaps(connection, found[1], declared), *signals.gaps(connection, found[1])]
    yield from (f"doctor: {one.place}: {one.finding}" for one in told if one.place not in loose | texts)
    yield from (f"doctor finds nothing at {name}" for name in sorted((loose | texts) - {one.place for one in told}))


def differences(settings: Settings, shapes: Sequence[Shape]) -> Iterator[str]:
    """Where tables of now, or the current states of histories, are not what the source has; gaps; red books."""
    ended = 0
    for shape in shapes:
        there = _there(settings.source_dsn(), shape)
        now, then, ends = (_rows(settings, name) for name in (*tables(shape), f"{shape.name}_then__deleted"))
        ended += sum(not row["is_current"] for row in then)
        yield from compared(shape, there=there, now=now, then=then, ends=ends)
    if not ended:
        yield "no history has a state that has ended"
    yield from changes.books(settings)
    with Picture(catalog.load(settings.project), settings.lake) as picture:
        yield from (f"{one.invariant} {one.place}: {one.finding}" for one in check(picture, at_rest=False))


def compared(
    shape: Shape, *, there: Sequence[Row], now: Sequence[Row], then: Sequence[Row], ends: Sequence[Row]
) -> Iterator[str]:
    """What is not as it must be of one shape: where nothing is there, nothing was found out."""
    current = [row for row in then if row["is_current"]]
    for place, rows in (("in the source", there), ("in the lake", now), ("current in its history", current)):
        if not rows:
            yield f"{shape.name} ({_told(shape)}): no row {place}"
    yield from _differs(shape.name, shape, there, now)
    yield from _differs(f"{shape.name}_then", shape, there, current)
    yield from _gaps(shape, then, ends)


def _there(dsn: str, shape: Shape) -> list[Row]:
    with (
        psycopg.connect(dsn, options="-c timezone=UTC") as connection,
        connection.cursor(row_factory=psycopg.rows.dict_row) as cursor,
    ):
        found: list[Row] = cursor.execute(shape.shown()).fetchall()
        return found


def _rows(settings: Settings, name: str) -> list[Row]:
    path = settings.lake / "silver" / name
    return deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist() if path.exists() else []


def _differs(name: str, shape: Shape, there: Sequence[Row], lake: Sequence[Row]) -> Iterator[str]:
    wanted, found = _by_key(shape, there), _by_key(shape, lake)
    if len(found) < len(lake):
        yield f"{name} ({_told(shape)}): {len(lake) - len(found)} keys twice"
    for what, keys in (("missing", wanted.keys() - found.keys()), ("too many", found.keys() - wanted.keys())):
        if keys:
            yield f"{name} ({_told(shape)}): {len(keys)} rows {what}, such as {sorted(keys, key=str)[:3]}"
    for one in shape.columns:
        both = [key for key in wanted if key in found]
        unlike = [key for key in both if wanted[key][one.name] != found[key][one.name]]
        if unlike:
            said, is_now = found[unlike[0]][one.name], wanted[unlike[0]][one.name]
            yield f"{name}.{one.name} ({one.ddl}): {len(unlike)} differ, such as {said!r} for {is_now!r}"


def _gaps(shape: Shape, then: Sequence[Row], ends: Sequence[Row]) -> Iterator[str]:
    """A state that has ended is followed by another one at once, unless an end is remembered between them."""
    ended_at: dict[tuple[object, ...], list[str]] = {}
    for end in ends:
        ended_at.setdefault(tuple(end[key] for key in shape.keys), []).append(end["_source"])
    everything = ended_at.get((None,) * len(shape.keys), [])
    keys: dict[tuple[object, ...], list[Row]] = {}
    for row in then:
        keys.setdefault(tuple(row[key] for key in shape.keys), []).append(row)
    for key, states in keys.items():
        states.sort(key=lambda row: str(row["_source"]))
        mine = [*ended_at.get(key, []), *everything]
        for row, follows in zip(states, [*states[1:], None], strict=True):
            last = "~" if follows is None else follows["_source"]
            ended = any(row["_source"] < end <= last for end in mine)
            if follows is not None and row["valid_to"] != follows["valid_from"] and not ended:
                yield f"{shape.name}_then {key}: a gap after {row['_source']}"
            if follows is None and not row["is_current"] and not ended:
                yield f"{shape.name}_then {key}: its last state has ended, and nothing says why"


def _by_key(shape: Shape, rows: Sequence[Row]) -> dict[tuple[object, ...], Row]:
    return {tuple(row[key] for key in shape.keys): row for row in rows}


def _told(shape: Shape) -> str:
    return f"{shape.keyed}, {'full' if shape.full else 'default'}{', in parts' if shape.parted else ''}"


Say = Callable[[str], None]


def timed(say: Say) -> Say:
    """Say it with the seconds since now."""
    began = time.monotonic()
    return lambda text: say(f"{time.monotonic() - began:6.1f} s  {text}")
