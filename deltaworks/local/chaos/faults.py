"""The list of faults: what `deltaworks chaos` offers, what `make proof` does once each and then draws from."""

import signal

from deltaworks.errors import StackError
from deltaworks.findings import nearest
from deltaworks.local.chaos import broker, disk, drivers, parts, source
from deltaworks.local.chaos.fault import Fault

_BY_ITSELF = "each row once, the checker finds nothing, gold is fresh again without anybody's help"
_AGAIN = "started again by the supervisor"

FAULTS = (
    Fault(
        name="restart",
        does="the app is stopped in good order",
        undone="wanted running again",
        holds=f"{_BY_ITSELF}; the time that this takes is what the others are measured by",
        inflict=drivers.restart,
    ),
    Fault(
        name="driver-killed",
        does="the driver's Python or JVM gets signal 9",
        undone="Airflow starts another one",
        holds=_BY_ITSELF,
        inflict=drivers.kill,
    ),
    Fault(
        name="driver-stopped",
        does="SIGSTOP for all processes of the driver, longer than its lease lasts",
        undone="SIGCONT",
        holds=_BY_ITSELF,
        inflict=drivers.stop,
    ),
    Fault(
        name="broker-killed",
        does="Kafka gets signal 9",
        undone=_AGAIN,
        holds=_BY_ITSELF,
        inflict=parts.killed("kafka"),
    ),
    Fault(
        name="broker-stopped",
        does="SIGSTOP for Kafka, for 5 to 20 seconds",
        undone="SIGCONT",
        holds=_BY_ITSELF,
        inflict=parts.stopped("kafka", 5, 20),
    ),
    Fault(
        name="broker-down",
        does="Kafka is away for 15 to 45 seconds",
        undone="started again",
        holds=_BY_ITSELF,
        inflict=parts.down("kafka", 15, 45),
    ),
    Fault(
        name="connect-killed",
        does="Connect gets signal 9",
        undone=_AGAIN,
        holds=_BY_ITSELF,
        inflict=parts.killed("connect"),
    ),
    Fault(
        name="connect-killed-in-snapshot",
        does="the source is read anew, and Connect gets signal 9 meanwhile",
        undone=_AGAIN,
        holds=_BY_ITSELF,
        inflict=source.kill_in_snapshot,
        destroys=True,
        missing=source.needs_source,
    ),
    Fault(
        name="source-killed",
        does="the source's Postgres gets signal 9",
        undone=_AGAIN,
        holds=_BY_ITSELF,
        inflict=parts.killed("source"),
    ),
    Fault(
        name="source-restarted",
        does="the source's Postgres is stopped at once (SIGQUIT, pg_ctl's immediate) and recovers from its log",
        undone=_AGAIN,
        holds=_BY_ITSELF,
        inflict=parts.killed("source", signal.SIGQUIT),
    ),
    Fault(
        name="control-killed",
        does="the Postgres of the control store and of Airflow gets signal 9",
        undone=_AGAIN,
        holds=_BY_ITSELF,
        inflict=parts.killed("control"),
    ),
    Fault(
        name="scheduler-killed",
        does="Airflow's scheduler gets signal 9",
        undone=_AGAIN,
        holds=_BY_ITSELF,
        inflict=parts.killed("airflow-scheduler"),
    ),
    Fault(
        name="triggerer-killed",
        does="Airflow's triggerer, which watches the drivers, gets signal 9",
        undone=_AGAIN,
        holds=_BY_ITSELF,
        inflict=parts.killed("airflow-triggerer"),
    ),
    Fault(
        name="slot-dropped",
        does="Connect is away, and its replication slot is dropped",
        undone="`deltaworks source resnapshot`, as the doctor says",
        holds="the doctor names the slot; after the snapshot the lake equals the source again",
        inflict=source.drop_slot,
        destroys=True,
        missing=source.needs_source,
    ),
    Fault(
        name="schema-changed",
        does="a captured table gets a column more for some seconds, and rows that have it",
        undone="the column is dropped",
        holds=_BY_ITSELF,
        inflict=source.change_schema,
        missing=source.needs_source,
    ),
    Fault(
        name="partitions-added",
        does="the topic gets one partition more while it is read",
        undone="declared in topics.toml, as the doctor says; partitions cannot be taken away",
        holds=f"{_BY_ITSELF}; the new partition is read from its first record on",
        inflict=broker.add_partitions,
        destroys=True,
        missing=broker.changes_of_a_database,
    ),
    Fault(
        name="copies-in-disorder",
        does="the last records of the topic are sent again, one to three times, in any order",
        undone="nothing is to undo",
        holds=f"{_BY_ITSELF}; copies count as duplicates",
        inflict=broker.send_copies,
        destroys=True,
    ),
    Fault(
        name="clock-in-2099",
        does="one sender's clock is in 2099 for some events",
        undone="nothing is to undo",
        holds="these events are set aside with their reason, and no other one becomes late by them",
        inflict=broker.send_from_2099,
        missing=broker.no_event_time,
    ),
    Fault(
        name="disk-full",
        does="the lake's disk is full for 10 to 25 seconds",
        undone="freed",
        holds=_BY_ITSELF,
        inflict=disk.fill,
        missing=disk.small_disk,
    ),
    Fault(
        name="writes-refused",
        does="no process of the driver can write beyond the first bytes of a file (RLIMIT_FSIZE)",
        undone="the limit is taken away",
        holds=_BY_ITSELF,
        inflict=disk.refuse_writes,
        missing=disk.no_limits,
    ),
    Fault(
        name="disk-slow",
        does="each file call of the driver takes 10 to 100 ms longer (strace holds it back)",
        undone="the tracer lets go",
        holds=_BY_ITSELF,
        inflict=disk.slow_down,
        missing=disk.no_tracer,
    ),
    Fault(
        name="retention-passed",
        does="records come while the app is away, and the broker deletes them unread",
        undone="nothing can undo it",
        holds="the ledger is red and shows exactly these offsets as gone; every other row is there once",
        inflict=broker.pass_retention,
        destroys=True,
    ),
    Fault(
        name="topic-recreated",
        does="the topic is deleted and made anew while the app is away",
        undone="the tables made from it are moved out of the lake, and are made anew",
        holds="the app refuses the topic and says why; after the repair each row of the new topic is there once",
        inflict=broker.recreate,
        destroys=True,
        missing=broker.changes_of_a_database,
    ),
)
"""In the order in which one run does them."""


def fault(name: str) -> Fault:
    """Find a fault; raises StackError with the nearest name."""
    found = {one.name: one for one in FAULTS}
    if name not in found:
        raise StackError(name, "no such fault", nearest(name, found, "faults"))
    return found[name]
