"""Random changes in a real Postgres through Debezium into the lake, with Connect and the driver killed: is it the same?

    .venv/spark/bin/python -m tests.chaos.changes --transactions 1500 --seed 7

Sessions that collide work before the snapshot, through it, and while changes are streamed; Connect is killed with -9 in
the snapshot and in the stream, the driver in the middle of its rows. Then all work ends, the driver runs until it
has caught up, and each current-state table must equal its source table, row by row. Takes about three minutes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random, SystemRandom
from typing import Annotated, Any

import deltalake
import psycopg
import typer
from confluent_kafka import Consumer, KafkaException, TopicPartition

from deltaworks import catalog
from deltaworks.cli.show import out
from deltaworks.engine.ledger import Ledger
from deltaworks.local import connect, stack
from deltaworks.settings import ROOT, Settings
from tests.chaos.workload import BODY_BYTES, DOCUMENTS, PAIRS, PLAIN, WIDE, Source, Workload, rows
from tests.running_stack import connector_for, left_over, load_scratch, part, wait_until

PROJECT = ROOT / "tests" / "changes"
TOPIC = "shop.changes"
UNSENT = "__debezium_unavailable_value"
SECONDS_MAX = 300.0
FIRST_OF_MANY = 100_000  # keys of the rows that are there before anything else, to make the snapshot long


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What came of a run: which kinds of events there were, and where the lake differs from the source."""

    events: Mapping[str, int]
    tried: Mapping[str, int]
    rows: Mapping[str, int]
    findings: tuple[str, ...]


@contextmanager
def source_and_broker(drawn: Callable[[Path], None] | None = None) -> Iterator[Settings]:
    """Give settings with both Postgres servers and Kafka running, and the tables there; Connect is not started yet.

    `drawn` writes other tables, and a connector for them, into a copy of the project.
    """
    data = Path(tempfile.mkdtemp(prefix="deltaworks-"))
    project = Path(shutil.copytree(PROJECT, data / "project"))
    if drawn is None:
        (project / "connector.json").write_text(connector_for("plain", "pairs", "wide", "documents"))
    else:
        drawn(project)
    settings = load_scratch(project, data=data)
    try:
        stack.up(settings, parts=("source", "control", "kafka"), seconds_max=SECONDS_MAX)
        yield settings
    finally:
        stack.down(settings)
    assert not (left := left_over(settings)), f"left over: {left}"
    shutil.rmtree(data, ignore_errors=True)  # after a failure it stays, with its logs


def run(
    settings: Settings,
    *,
    chance: Random,
    transactions: int,
    before: int,
    pause: float = 0.1,
    moved_documents: bool = False,
    say: Any = print,
) -> Compared:
    """Work, kill, work on, kill, drain, compare; `before` rows are there before anything else.

    `transactions` at least: the sessions go on, with a `pause` of so many seconds at most, while things come back.
    """
    tables = (PLAIN, PAIRS, WIDE, replace(DOCUMENTS, moves=moved_documents))
    dsn = settings.source_dsn()
    _fill(dsn, before)
    with Workload(dsn, chance=chance, tables=tables, pause=pause) as work:
        work.wait(transactions // 6)
        stack.up(settings, parts=("connect",), wait_for=())
        wait_until(lambda: end(settings) > 0, what="the snapshot's first rows", seconds_max=SECONDS_MAX)
        time.sleep(chance.uniform(0, 0.4))
        kill_connect(settings)
        say(f"Connect killed in the snapshot, after {end(settings)} records")
        wait_until(lambda: streams(settings), what="changes that are streamed", seconds_max=SECONDS_MAX)
        _rare_changes(dsn)
        work.wait(transactions // 3)
        mortal = driver(settings)
        work.wait(transactions // 6)
        kill_connect(settings)
        say("Connect killed in the stream")
        wait_until(lambda: _has_rows(settings), what="rows in the lake", seconds_max=SECONDS_MAX)
        os.killpg(mortal.pid, signal.SIGKILL)
        mortal.wait()
        say("the driver killed in the middle of its rows")
        work.wait(transactions // 3)
    work.must_go_on()
    settle(settings, dsn)
    code = driver(settings).wait(timeout=SECONDS_MAX)
    assert code == 0, f"the driver ended with {code}: see {settings.logs / 'changes.log'}"
    findings = [finding for table in tables for finding in _compare(settings, dsn, table)]
    findings += books(settings)
    counted = {table.name: len(rows(dsn, table)) for table in tables}
    return Compared(events=_events(settings), tried=work.done, rows=counted, findings=tuple(findings))


def _fill(dsn: str, count: int) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into public.plain select %s + n, n, n, 'there before', now() from generate_series(1, %s) as n",
            (FIRST_OF_MANY, count),
        )


def _rare_changes(dsn: str) -> None:
    """Change a row without its large text, and the key of another: the sessions may not come to do it."""
    number = 10 * FIRST_OF_MANY  # nobody else has these keys
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("insert into public.documents values (%s, 1, %s)", (number, "x" * BODY_BYTES))
        connection.execute("update public.documents set n = 2 where id = %s", (number,))
        connection.execute("insert into public.plain (id, n, note, at) values (%s, 1, '', now())", (number,))
        connection.execute("update public.plain set id = id + 1 where id = %s", (number,))


def kill_connect(settings: Settings) -> None:
    """As `kill -9` does; its supervisor starts another one."""
    pid = part(settings, "connect").pid
    assert pid is not None, "Connect does not run"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: part(settings, "connect").pid != pid, what="the end of Connect")


def _consumer(settings: Settings, isolation: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": settings.kafka, "group.id": "tests", "isolation.level": isolation, "log_level": 3}
    )


def end(settings: Settings) -> int:
    """End of the topic, with what is not committed yet."""
    consumer = _consumer(settings, "read_uncommitted")
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)[1])
    except KafkaException:
        return 0
    finally:
        consumer.close()


def streams(settings: Settings) -> bool:
    """Whether the snapshot is over: the slot has been read beyond it."""
    status, body = connect.ask(settings, "GET", "/connectors/shop/offsets")
    if status != 200 or not body["offsets"]:
        return False
    offset = body["offsets"][0]["offset"]
    return offset is not None and not offset.get("snapshot")


def settle(settings: Settings, dsn: str) -> None:
    """Wait until Connect has brought all there is."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("select (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
    assert row is not None
    wait_until(
        lambda: (connect.settled_lsn(settings) or 0) >= row[0],
        what="Connect at the source's end", seconds_max=SECONDS_MAX,
    )  # fmt: skip


def driver(settings: Settings) -> "subprocess.Popen[bytes]":
    """Start one that ends when it has caught up."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    script = str(ROOT / "spark_apps/stream.py")
    with (settings.logs / "changes.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, script, "--app", "changes", "--project", str(settings.project), "--drain"],
            env=settings.inherited(), stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def _has_rows(settings: Settings) -> bool:
    path = settings.lake / "silver" / "plain"
    return deltalake.DeltaTable.is_deltatable(str(path)) and deltalake.DeltaTable(str(path)).version() > 0


def _compare(settings: Settings, dsn: str, table: Source) -> list[str]:
    """Where the lake's table differs from the source's, in the columns that the source has now."""
    there = rows(dsn, table)
    lake = deltalake.DeltaTable(str(settings.lake / "silver" / table.name)).to_pyarrow_table().to_pylist()
    found = {tuple(row[key] for key in table.keys): row for row in lake}
    findings = [f"{table.name}: {len(lake) - len(found)} keys twice"] if len(lake) != len(found) else []
    missing, extra = sorted(there.keys() - found.keys()), sorted(found.keys() - there.keys())
    findings += [f"{table.name}: {len(missing)} rows missing, such as {missing[:5]}"] if missing else []
    findings += [f"{table.name}: {len(extra)} rows too many, such as {extra[:5]}"] if extra else []
    for key in there.keys() & found.keys():
        names = [name for name in there[key] if name in found[key] and there[key][name] != found[key][name]]
        findings += [f"{table.name} {key}: {name} differs: {found[key]}"[:300] for name in names]
    return findings


def books(settings: Settings) -> list[str]:
    """What the ledger does not find well, and why rows were refused."""
    ledger = Ledger(catalog.load(settings.project), settings.lake)
    findings = [f"{sheet.table}: {sheet.verdict}" for sheet in ledger.sheets() if sheet.verdict != "ok"]
    for path in sorted(settings.lake.glob("silver/*__quarantine")):
        reasons = Counter(deltalake.DeltaTable(str(path)).to_pyarrow_table()["reason"].to_pylist())
        findings += [f"{path.name}: {count} rows: {reason}" for reason, count in reasons.most_common(5)]
    return findings


def _events(settings: Settings) -> dict[str, int]:
    """What was in the topic, by kind."""
    bronze = deltalake.DeltaTable(str(settings.lake / "bronze" / "changes")).to_pyarrow_table()
    counted: Counter[str] = Counter()
    for value, headers in zip(bronze["value"].to_pylist(), bronze["headers"].to_pylist(), strict=True):
        if value is None:
            counted["tombstone"] += 1
            continue
        document = json.loads(value)
        counted[str(document.get("op") or document.get("status"))] += 1
        counted["unsent"] += UNSENT.encode() in value
        counted["moved"] += any(str(header["key"]) == "__debezium.newkey" for header in headers or ())
        counted["snapshot begun"] += (document.get("source") or {}).get("snapshot") == "first"
    return dict(counted)


def main(
    transactions: Annotated[int, typer.Option(min=30, help="Transactions of the workload.")] = 1500,
    before: Annotated[int, typer.Option(help="Rows that are there before the snapshot.")] = 15_000,
    seed: Annotated[int | None, typer.Option(help="Decides what is tried; default: by chance.")] = None,
    moved_documents: Annotated[
        bool, typer.Option("--moved-documents", help="Change keys of rows whose large texts are not sent, too.")
    ] = False,
) -> None:
    """Change, kill, compare, report. Exit code 1 if the lake is not what the source is."""
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    out.print(f"seed {seed}")
    began = time.monotonic()
    with source_and_broker() as settings:
        out.print(f"in {settings.data}")

        def say(text: str) -> None:
            out.print(f"[dim]{time.monotonic() - began:6.1f} s[/dim]  {text}", soft_wrap=True)

        found = run(
            settings,
            chance=Random(seed),
            transactions=transactions,
            before=before,
            moved_documents=moved_documents,
            say=say,
        )
        _report(found)
        if found.findings:
            raise typer.Exit(1)  # here, so that the scratch folder stays


def _report(found: Compared) -> None:
    for name, counts in (("events", found.events), ("tried", found.tried), ("rows at the end", found.rows)):
        listed: Collection[str] = [f"{count} {kind}" for kind, count in sorted(counts.items())]
        out.print(f"{name}: {', '.join(listed)}", soft_wrap=True)
    for finding in found.findings:
        out.print(finding, markup=False, soft_wrap=True)
    out.print("The lake is what the source is." if not found.findings else "It did not hold.")


if __name__ == "__main__":
    typer.run(main)
