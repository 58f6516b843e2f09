"""Is everything as it should be? Each check is one function; one that cannot run says so and is never "ok"."""

import configparser
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import psycopg
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from deltaworks import catalog, processes
from deltaworks.control import Store
from deltaworks.errors import DeltaworksError
from deltaworks.java import java_home
from deltaworks.local import connect, kafka, signals, stack
from deltaworks.local.captured import Gap, asking, gaps
from deltaworks.local.part import UP
from deltaworks.local.ports import check_free
from deltaworks.settings import Settings
from deltaworks.supervise.judge import broken_rules, suspended_tables
from deltaworks.supervise.launch import driver_processes
from deltaworks.supervise.watch import judged
from deltaworks.words.reading import Debezium

_DISK_BYTES_WARN, _DISK_BYTES_MIN = 10 * 2**30, 2 * 2**30
_WAL_BYTES_WARN = 512 * 2**20  # half of max_slot_wal_keep_size
_SECONDS_MAX = 5
_LOG_BYTES_MAX = 4 * 2**20
_LINE = r"^([-\d]{10} [:\d]{8})\.\d{3} (?:WARN|ERROR) "
"""The beginning of a line as `kafka.py` has Connect write them."""
_UNREAD = {
    re.compile(_LINE + r"(\S*(?:Convert|SchemaBuilder)\S*) ", re.MULTILINE): (
        "value(s) not read",
        'Read "deltaworks logs connect": values may be null that are not in the source',
    ),
    re.compile(_LINE + r"(\S*IncrementalSnapshot\S*|SignalProcessor(?= Action)) ", re.MULTILINE): (
        "time(s) a table may have been left out that was to be read beside the stream",
        'Read "deltaworks logs connect": what was asked for with it may wait until Connect has been started again',
    ),
}
"""By what turns values into records, and what reads tables beside the stream: what is told of it, and the next step."""
_BEGINNING_SECONDS_MAX = 60
Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check's result, and what to do if it is not ok."""

    check: str
    verdict: Verdict
    finding: str
    next_step: str = ""


Check = Callable[[Settings], Iterator[Finding]]


def examine(settings: Settings) -> list[Finding]:
    """Every check: of the machine always, of the running parts if there are any."""
    found = [finding for check in _MACHINE for finding in _run(check, settings)]
    if not stack.alive(settings):
        return [*found, _warn("stack", "does not run", 'Run "deltaworks up"')]
    return found + [finding for check in _STACK for finding in _run(check, settings)]


def _run(check: Check, settings: Settings) -> list[Finding]:
    name = check.__name__.removeprefix("_").replace("_", " ")
    try:
        return list(check(settings))
    except DeltaworksError as error:
        return [_fail(name, f"{error.place}: {error.finding}", error.next_step)]
    except Exception as error:  # noqa: BLE001  # a check that breaks is a finding, and the others still run
        return [_fail(name, f"cannot be checked: {type(error).__name__}: {error}", 'Run "deltaworks status"')]


def _environments(settings: Settings) -> Iterator[Finding]:
    pythons = {"spark": settings.spark_python, "airflow": settings.airflow_python}
    if settings.place == "containers":
        del pythons["airflow"]  # in other containers
    for name, python in pythons.items():
        if not python.exists():
            yield _fail("environments", f"{name}: {python} is missing", 'Run "make setup"')
            continue
        asked = [str(python), "-c", "import deltaworks.settings, sys; print('%d.%d.%d' % sys.version_info[:3])"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60, cwd="/")
        if said.returncode == 0:
            yield _ok("environments", f"{name}: Python {said.stdout.strip()}, finds deltaworks")
        else:
            last = said.stderr.strip().splitlines()[-1]
            yield _fail("environments", f"{name}: {last}", 'Run "make setup"')


def _java(settings: Settings) -> Iterator[Finding]:
    home = java_home(environment=settings.inherited(), spark_python=settings.spark_python)
    yield _ok("java", str(home))


def _jars(settings: Settings) -> Iterator[Finding]:
    for folder in ("spark", "broker", "connect/lib", "connect/plugins/debezium-postgres"):
        if not any((settings.jars / folder).glob("*.jar")):
            yield _fail("jars", f"{settings.jars / folder} has none", 'Run "make setup"')
            return
    yield _ok("jars", str(settings.jars))


def _ports(settings: Settings) -> Iterator[Finding]:
    if stack.alive(settings):
        return
    check_free(settings, settings.ports)
    yield _ok("ports", "free")


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = next(one for one in (settings.data, *settings.data.parents) if one.exists())
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:.1f} GB free for {settings.data}"
    step = "Free some space, or set DELTAWORKS_DATA to a folder on another disk"
    if free < _DISK_BYTES_MIN:
        yield _fail("disk", text, step)
    elif free < _DISK_BYTES_WARN:
        yield _warn("disk", text, step)
    else:
        yield _ok("disk", text)


def _clock(settings: Settings) -> Iterator[Finding]:
    """A clock that was put back makes event times and lease ends lie in the future."""
    written = [path.stat().st_mtime for path in (settings.run, settings.logs) if path.exists()]
    ahead = max(written, default=0.0) - time.time()
    if ahead > 1:
        yield _fail("clock", f"files here were written {ahead:.0f} s in the future", "Set the clock; use NTP")
    else:
        yield _ok("clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))


def _secrets(settings: Settings) -> Iterator[Finding]:
    if settings.place == "containers":
        yield _ok("secrets", "given to each container by its host")
        return
    if not settings.secrets.exists():
        yield _ok("secrets", "none yet")
        return
    private = [
        *settings.secrets.iterdir(),
        settings.data / "airflow/airflow.cfg",
        settings.data / "airflow/passwords.json",
    ]
    for path in (settings.secrets, *private):
        if not path.exists():
            continue
        found = path.stat()
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
            finding = f"{path} has mode {stat.S_IMODE(found.st_mode):04o}, owner {found.st_uid}: others may read it"
            yield _fail("secrets", finding, f"chmod go= {path}; if others use this machine, make new secrets")
            return
    yield _ok("secrets", f"{len(private)} files, only for us")


def _parts(settings: Settings) -> Iterator[Finding]:
    found = stack.state(settings)
    late = [one for one in found.parts.values() if one.state not in UP]
    for one in late:
        after = f", after {one.last_exit}" if one.last_exit else ""
        seconds = time.time() - one.since
        finding = f"{one.name} is {one.state} for {seconds:.0f} s{after}"
        # every "up" runs some steps again: what has just begun and never failed is no fault yet
        beginning = one.state in ("waiting", "starting") and not one.restarts and seconds < _BEGINNING_SECONDS_MAX
        told = _warn if beginning else _fail
        yield told("parts", finding, f'Run "deltaworks logs {stack.log_of(one.name)}"')
    if not late:
        yield _ok("parts", f"{len(found.parts)} ready or done")


def _loopback(settings: Settings) -> Iterator[Finding]:
    """Every listening socket of every process of ours: the parts, and the drivers, which are sessions of their own.

    Containers listen in a network of their own; what the host opens to others is said in docker-compose.yml.
    """
    if settings.place == "containers":
        yield _ok("loopback", "containers listen in their own network, and their host publishes on loopback alone")
        return
    parts = [part for part in stack.state(settings).parts.values() if part.pid is not None]
    pids = {pid for part in parts if part.pid for pid in processes.members(part.pid, part.folder)} | _drivers(settings)
    own = {inode for pid in pids for inode in processes.sockets_of(pid)}
    listening = {place: inode for place, inode in processes.listening().items() if inode in own}
    for address, port in listening:
        if address not in LOOPBACK:
            yield _fail("loopback", f"port {port} is open to other machines", "Find the part with: ss -ltnp")
            return
    if listening:
        yield _ok("loopback", f"{len(listening)} ports, none open to other machines")
    else:
        yield _warn("loopback", "no listening port found; this needs /proc and the parts' own user", "")


def _drivers(settings: Settings) -> set[int]:
    """Processes of Spark drivers; without a control store only those that were started here are known."""
    if "control" not in stack.state(settings).parts:
        return driver_processes(settings, None)
    with Store(settings.control_dsn()) as store:
        return driver_processes(settings, store)


def _airflow(settings: Settings) -> Iterator[Finding]:
    if "airflow-scheduler" not in stack.state(settings).parts:
        return
    if settings.place == "containers":
        yield from _imports(settings, "its settings are in other containers")
        return
    config = configparser.RawConfigParser()
    config.read(settings.data / "airflow" / "airflow.cfg")
    runs, apps = config.getint("scheduler", "max_dagruns_per_loop_to_schedule"), len(settings.apps)
    if runs < 2 * apps + 20:
        finding = f"max_dagruns_per_loop_to_schedule is {runs} with {apps} apps: backfills would starve"
        yield _fail("airflow", finding, 'Run "deltaworks up" to write its settings anew, then restart Airflow')
    yield from _imports(settings, f"{runs} runs per loop")


def _imports(settings: Settings, further: str) -> Iterator[Finding]:
    with psycopg.connect(settings.dsn("airflow"), connect_timeout=_SECONDS_MAX) as connection:
        broken = [str(row[0]) for row in connection.execute("select filename from import_error order by 1")]
    if broken:
        yield _fail("airflow", f"cannot import {', '.join(broken)}", "See the import errors on Airflow's Dags page")
    else:
        yield _ok("airflow", f"no import errors, {further}")


def _apps(settings: Settings) -> Iterator[Finding]:
    """How each app is, by the words of `app status`."""
    if "control" not in stack.state(settings).parts:
        return
    with Store(settings.control_dsn()) as store:
        for app in store.apps():
            seen, verdict = judged(settings, store, app.name)
            told = f"{app.name} is {verdict.state}: {verdict.reason}"
            if verdict.state == "suspended" and seen.heartbeat and (tables := suspended_tables(seen.heartbeat)):
                yield _fail("apps", told, f"Mend {next(iter(tables))}; it is tried again by itself")
            elif verdict.broken and seen.heartbeat and (broken := broken_rules(seen.heartbeat)):
                table = next(iter(broken))[0]
                yield _fail("apps", told, f"Look at the rows of {table} by SQL, then mend what they are computed from")
            elif not verdict.well:
                yield _fail("apps", told, f'Run "deltaworks logs app-{app.name}"')
            elif verdict.needs is not None:
                yield _warn("apps", told, f'Run "deltaworks app status {app.name}" again; Airflow starts it')
            else:
                yield _ok("apps", told)


def _topics(settings: Settings) -> Iterator[Finding]:
    if "kafka" not in stack.state(settings).parts:
        return
    differences = list(kafka.differences(settings))
    for difference in differences:
        yield _fail("topics", difference, 'Run "deltaworks up", which changes topics to what topics.toml declares')
    found = connect.connector_of(settings)
    others = kafka.undeclared(settings, prefix=None if found is None else found[1].get("topic.prefix"))
    for name in others:
        yield _warn("topics", f"{name} is in Kafka, and topics.toml does not declare it", _CLEAR)
    if not differences and not others:
        yield _ok("topics", f"{len(settings.topics)} as declared, and no others")


def _arrival(settings: Settings) -> Iterator[Finding]:
    """Whether the broker says when a record came, so that a sender's clock that is ahead is found out by another one.

    Of changes too: Connect's clock is another one than the broker's.
    """
    if "kafka" not in stack.state(settings).parts:
        return
    read = {topic for declared in catalog.readable(settings.project).values() for topic in declared.topics}
    found = list(kafka.of_producers_time(settings, read))
    for topic in found:
        told = f"{topic} has the times of its producers: one whose clock is ahead arrives in the future"
        yield _warn("arrival", told, f"Set {kafka.TIMESTAMP_TYPE}={kafka.BY_BROKER} for it, or for the broker")
    if read and not found:
        yield _ok("arrival", f"the broker says when records of {len(read)} topics came")


def _connector(settings: Settings) -> Iterator[Finding]:
    found = connect.connector_of(settings) if "connect" in stack.state(settings).parts else None
    if found is None:
        return
    name, declared = found
    status, states = _connector_states(settings, name)
    if status != 200:
        yield _fail("connector", f"{name}: Connect answers {status or 'nothing'}", 'Run "deltaworks up"')
        return
    yield from _judged_states(name, states)
    _, running = connect.ask(settings, "GET", f"/connectors/{name}/config")
    if changed := connect.differing(declared, running):
        yield _warn("connector", f"{name}: {', '.join(changed)} differ from the project's file", 'Run "deltaworks up"')


def _captured(settings: Settings) -> Iterator[Finding]:
    """Whether the source and the connector give what the tables over changes read."""
    missing = not_given(settings)
    if missing is None:
        return
    for one in missing:
        yield _fail("captured", f"{one.place}: {one.finding}", one.next_step)
    reading = sum(isinstance(one.table.reads, Debezium) for one in catalog.readable(settings.project).values())
    if reading and not missing:
        yield _ok("captured", f"all that {reading} tables read")


def not_given(settings: Settings) -> list[Gap] | None:
    """What tables over changes lack by the source or the connector; None where no source is of this stack.

    Raises StackError when the source does not answer, or not in time.
    """
    found = connect.connector_of(settings) if "source" in stack.state(settings).parts else None
    if found is None:
        return None
    tables = {name: declared.table for name, declared in catalog.readable(settings.project).items()}
    with asking(settings) as connection:
        return [*gaps(connection, found[1], tables), *signals.gaps(connection, found[1])]


@retry(
    retry=retry_if_result(lambda found: bool({"UNASSIGNED", "RESTARTING"} & {*found[1]})),
    stop=stop_after_delay(20),  # a rebalance of the workers, after each change of a connector, takes a few seconds
    wait=wait_fixed(0.5),
    retry_error_callback=lambda state: state.outcome.result() if state.outcome is not None else (0, []),
)
def _connector_states(settings: Settings, name: str) -> tuple[int, list[str]]:
    """Connect's answer, and the states of the connector and its tasks once no worker is between two assignments."""
    status, body = connect.ask(settings, "GET", f"/connectors/{name}/status")
    return status, connect.states_in(body) if status == 200 else []


def _judged_states(name: str, states: list[str]) -> Iterator[Finding]:
    if len(states) < 2 or set(states) != {"RUNNING"}:
        yield _fail("connector", f"{name}: {', '.join(states)}", 'Run "deltaworks logs connect"')
    else:
        yield _ok("connector", f"{name} and its task are running")


def _connect_log(settings: Settings) -> Iterator[Finding]:
    found = unread(settings)
    for told, next_step in found or ():
        yield _warn("connect log", told, next_step)
    if found == []:
        yield _ok("connect log", "no value in a day that could not be read")


def unread(settings: Settings, *, since: datetime | None = None) -> list[tuple[str, str]] | None:
    """Of what it cannot read, a value or a table beside the stream, the connector sends null or nothing and goes on.

    Only its log says so. What, within a day or since then, and the next step; None where no Connect is of this stack.
    """
    path = settings.logs / "connect.log"
    if "connect" not in stack.state(settings).parts or not path.exists():
        return None
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _LOG_BYTES_MAX))
        text = log.read().decode(errors="replace")
    if since is None:
        since = datetime.now(UTC) - timedelta(days=1)
    first = f"{since.astimezone():%Y-%m-%d %H:%M:%S}"  # the log's times are local
    found = list[tuple[str, str]]()
    for pattern, (what, next_step) in _UNREAD.items():
        errors = [(at, logger) for at, logger in pattern.findall(text) if at >= first]
        if errors:
            at, logger = errors[-1]  # and not the texts, which quote values
            found.append((f"{len(errors)} {what} since {errors[0][0]}, the last at {at} by {logger}", next_step))
    return found


_CLEAR = 'Declare it again, or delete it: docs/how-to/operate.md, "What is not declared any more"'
_ANEW = 'Run "deltaworks source resnapshot"'


def _slot(settings: Settings) -> Iterator[Finding]:
    """Debezium does not notice that its slot was dropped and made anew: changes in between would be lost unseen."""
    found = connect.connector_of(settings) if "connect" in stack.state(settings).parts else None
    if found is None:
        return
    name = found[1].get("slot.name", "debezium")
    slot = slot_of(settings, name)
    if slot is None:
        yield _fail("slot", f"{name} does not exist: changes are being missed", _ANEW)
        return
    if not slot["active"]:
        yield _fail("slot", f"{name} has no reader", 'Run "deltaworks logs connect"')
    if slot["wal_status"] in {"unreserved", "lost"}:
        yield _fail("slot", f"{name} is {slot['wal_status']}: WAL that it needs goes or is gone", _ANEW)
    read = connect.committed_lsn(settings)
    if read is not None and slot["confirmed"] is not None and slot["confirmed"] > read:
        finding = f"{name} starts behind what Connect has read: it was dropped and made anew, changes are missing"
        yield _fail("slot", finding, _ANEW)
    text = f"{name} retains {slot['retained'] / 2**20:.0f} MB of WAL"
    if slot["retained"] > _WAL_BYTES_WARN:
        yield _warn("slot", text, "See whether the connector gets on: deltaworks logs connect")
    elif slot["active"]:
        yield _ok("slot", text)


def slot_of(settings: Settings, name: str) -> Mapping[str, Any] | None:
    """A replication slot of the source: active, wal_status, confirmed (LSN as a number), retained (bytes of WAL)."""
    query = """
        select active, wal_status, confirmed_flush_lsn - '0/0'::pg_lsn,
               coalesce(pg_current_wal_lsn() - restart_lsn, 0)
        from pg_replication_slots where slot_name = %s and database = 'shop'"""
    with psycopg.connect(settings.dsn("source_admin"), connect_timeout=_SECONDS_MAX) as connection:
        row = connection.execute(query, (name,)).fetchone()
    if row is None:
        return None
    confirmed = None if row[2] is None else int(row[2])
    return {"active": row[0], "wal_status": row[1], "confirmed": confirmed, "retained": int(row[3])}


def _ok(check: str, finding: str) -> Finding:
    return Finding(check=check, verdict="ok", finding=finding)


def _warn(check: str, finding: str, next_step: str) -> Finding:
    return Finding(check=check, verdict="warn", finding=finding, next_step=next_step)


def _fail(check: str, finding: str, next_step: str) -> Finding:
    return Finding(check=check, verdict="fail", finding=finding, next_step=next_step)


# 127.0.0.1, ::1 and ::ffff:127.0.0.1 as /proc/net/tcp writes them on little-endian machines
LOOPBACK = frozenset({"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"})
_MACHINE: tuple[Check, ...] = (_environments, _java, _jars, _ports, _disk, _clock, _secrets)
_STACK: tuple[Check, ...] = (
    _parts,
    _loopback,
    _airflow,
    _apps,
    _topics,
    _arrival,
    _connector,
    _connect_log,
    _captured,
    _slot,
)
