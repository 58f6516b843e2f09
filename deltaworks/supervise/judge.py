"""How an app is doing, judged from its progress and not only from its process. Pure: what was seen is an argument."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from deltaworks.control import App, Heartbeat, Lease
from deltaworks.supervise.launch import Launched

State = Literal["stopped", "draining", "starting", "healthy", "idle", "behind", "suspended", "stuck", "dead", "failed"]
NOT_WELL: tuple[State, ...] = ("suspended", "stuck", "dead", "failed")
"""Somebody has to look after it, or it is being restarted just now."""
Needs = Literal["start", "burial", "kill"]  # start one; the last one died, say so; it hangs, kill it


@dataclass(frozen=True, kw_only=True)
class Limits:
    """From when on which state; seconds unless said otherwise."""

    silent_seconds: float = 60  # no heartbeat from a living process; drivers beat every second, also in long batches
    starting_seconds: float = 300  # Spark starts in 10 s; a busy machine and a long recovery are slower
    no_progress_seconds: float = 600  # rows wait, or it is to stop, and nothing is committed, nor a command at work
    quiet_seconds: float = 30  # nothing waits, nothing was committed for so long: idle
    behind_rows: int = 50_000  # more rows wait than a batch takes
    behind_seconds: float = 60  # something has waited for longer: late


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One look at an app. `driver` is the living process if there is one, whether or not its lease is over."""

    at: datetime
    app: App
    lease: Lease | None = None
    heartbeat: Heartbeat | None = None
    driver: Launched | None = None
    launched_at: datetime | None = None  # when the last driver was started or took its lease; None: there was none
    busy_with: str | None = None  # the command at work, in words


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is the matter, why, and what has to be done about it, if anything.

    `late`: something waits for too long. `broken`: rows of computed tables break critical rules; None where nobody
    knows, as before a driver has counted them.
    """

    state: State
    reason: str
    needs: Needs | None = None
    late: bool = False
    broken: bool | None = None

    @property
    def well(self) -> bool:
        """Whether nobody has to look after it: neither a state of NOT_WELL, nor `late`, nor `broken`."""
        return self.state not in NOT_WELL and not self.late and not self.broken


def judge(seen: Seen, *, watched_seconds: float, limits: Limits) -> Verdict:
    """Say how the app is.

    `watched_seconds` is how long the control store has been read without a break: silence and standstill count only
    while somebody could have heard a beat, so that an outage of the store kills no driver.
    """
    if seen.driver is None:
        return _without_driver(seen)
    mine = seen.lease if _leads(seen.lease, seen.driver) else None
    heartbeat = seen.heartbeat if mine and seen.heartbeat and seen.heartbeat.epoch == mine.epoch else None
    pid = f"pid {seen.driver.pid}"
    if mine and (hangs := _hangs(mine, heartbeat, watched_seconds, limits)):
        return Verdict(state="stuck", reason=f"{pid} lives {hangs}", needs="kill")
    if heartbeat is None:
        return _unheard(seen, mine, pid, watched_seconds, limits)
    if heartbeat.state in ("draining", "stopped") or seen.app.desired == "stopped":
        return _draining(seen, heartbeat, pid, watched_seconds, limits)
    if heartbeat.state == "failed":
        return Verdict(state="failed", reason=f"{pid} gives up: {_error(heartbeat)}")
    found = _late(_running(seen, heartbeat, pid, watched_seconds, limits), heartbeat, limits)
    further = filter(None, (_broken(heartbeat), _uncounted(heartbeat), _careful(heartbeat.progress)))
    broken = bool(broken_rules(heartbeat)) or (None if heartbeat.progress.get("uncounted") else False)
    return replace(found, reason="; ".join((found.reason, *further)), broken=broken)


def _late(found: Verdict, heartbeat: Heartbeat, limits: Limits) -> Verdict:
    """The same, behind where something waits for too long; a worse state stays."""
    waited = heartbeat.progress.get("waited_seconds") or {}
    late = {name: seconds for name, seconds in waited.items() if seconds > limits.behind_seconds}
    if not late or found.state not in ("healthy", "idle", "behind"):
        return found
    told = ", ".join(f"{name} for {seconds:.0f} s" for name, seconds in sorted(late.items()))
    return Verdict(state="behind", reason=f"{found.reason}; waits for too long: {told}", late=True)


def _broken(heartbeat: Heartbeat) -> str:
    """Which critical rules are broken by rows of which tables, in words; empty where none is."""
    by_table: dict[str, list[str]] = {}
    for (table, rule), rows in broken_rules(heartbeat).items():
        by_table.setdefault(table, []).append(f"{rows} row{'s break' if rows > 1 else ' breaks'} {rule}")
    return "; ".join(f"{table}: {', '.join(told)}" for table, told in sorted(by_table.items()))


def _uncounted(heartbeat: Heartbeat) -> str:
    """Of which tables it is not known yet."""
    files = heartbeat.progress.get("uncounted") or {}
    told = ", ".join(f"{table} ({many} files)" for table, many in sorted(files.items()))
    return f"rows that break rules are still counted in {told}" if told else ""


def _careful(progress: Mapping[str, Any]) -> str:
    """Why and how a driver goes carefully, in words (decision 59); empty where it does not."""
    known = progress.get("careful") or {"deaths": 0, "tables": ()}
    deaths, tables = int(known["deaths"]), list(known["tables"])
    if deaths <= 1 and not tables:  # one end without a word asks for nothing yet
        return ""
    why = f"lives that ended without a word or out of memory: {deaths}" if deaths else "there was no memory for a batch"
    parts = [f"first a batch by Spark in {', '.join(tables)}"] if tables else []
    if deaths > 1:  # the first makes none smaller
        parts.append("small batches until all is caught up")
    return f"careful ({why}): {', and '.join(parts)}"


def lag_rows(heartbeat: Heartbeat) -> int:
    """Rows that wait in Kafka, over all topics and partitions."""
    lag = heartbeat.progress.get("lag") or {}
    return sum(int(rows or 0) for partitions in lag.values() for rows in (partitions or {}).values())


def copies_of(heartbeat: Heartbeat) -> list[dict[str, Any]]:
    """The copies that the driver keeps beside the lake, as it told them."""
    return list(heartbeat.progress.get("outlets") or [])


def _without_driver(seen: Seen) -> Verdict:
    if seen.app.desired == "stopped":
        return Verdict(state="stopped", reason=_wish(seen.app))
    heartbeat = _last_words(seen)
    ended_well = heartbeat is not None and heartbeat.state == "stopped"
    wished_since = seen.launched_at is None or seen.app.desired_at > seen.launched_at
    if wished_since or ended_well:
        return Verdict(state="stopped", reason=f"no driver runs; {_wish(seen.app)}", needs="start")
    if heartbeat is None:
        return Verdict(state="dead", reason="the driver ended before it was heard of", needs="burial")
    if heartbeat.state == "failed":
        return Verdict(state="failed", reason=f"the driver gave up: {_error(heartbeat)}", needs="burial")
    heard = f"it was {heartbeat.state} when last heard, {heartbeat.age_seconds:.0f} s ago"
    return Verdict(state="dead", reason=f"the driver's process is gone; {heard}", needs="burial")


def _last_words(seen: Seen) -> Heartbeat | None:
    """The last driver's heartbeat, not that of one before it: the last one may have ended before it had a lease."""
    lease, heartbeat = seen.lease, seen.heartbeat
    if lease is None or heartbeat is None or (seen.launched_at and seen.launched_at > lease.acquired_at):
        return None
    return heartbeat if heartbeat.epoch == lease.epoch else None


def _hangs(lease: Lease, heartbeat: Heartbeat | None, watched_seconds: float, limits: Limits) -> str:
    over = min(-lease.seconds_left, watched_seconds)
    if over > limits.silent_seconds:
        return f"although its lease is over for {over:.0f} s"
    silent = min(heartbeat.age_seconds, watched_seconds) if heartbeat else 0.0
    return f"but has not been heard for {silent:.0f} s" if silent > limits.silent_seconds else ""


def _unheard(seen: Seen, mine: Lease | None, pid: str, watched_seconds: float, limits: Limits) -> Verdict:
    if seen.app.desired == "stopped":
        silent = min(_age(seen), watched_seconds)
        if silent > limits.silent_seconds:
            return Verdict(state="stuck", reason=f"{pid} does not stop; {_wish(seen.app)}", needs="kill")
        return Verdict(state="draining", reason=f"{pid} is to stop; {_wish(seen.app)}")
    what = "has its lease and has not been heard yet" if mine else "has not taken its lease yet"
    return _starting(f"{pid} {what}", _age(seen), watched_seconds, limits)


def _draining(seen: Seen, heartbeat: Heartbeat, pid: str, watched_seconds: float, limits: Limits) -> Verdict:
    """It hangs when it neither ends nor commits; a drain that a person runs may commit for hours."""
    if seen.app.desired == "stopped" and not seen.busy_with:
        wanted = (seen.at - seen.app.desired_at).total_seconds()
        still = _still(seen, heartbeat, "last_commit_at", "last_batch_at", "worked_at")
        if min(wanted, still, watched_seconds) > limits.no_progress_seconds:
            reason = f"{pid} does not end, nothing was committed for {still:.0f} s; {_wish(seen.app)}"
            return Verdict(state="stuck", reason=reason, needs="kill")
    return Verdict(state="draining", reason=f"{pid} ends its batch; {_wish(seen.app)}")


def _starting(what: str, age: float, watched_seconds: float, limits: Limits) -> Verdict:
    if min(age, watched_seconds) > limits.starting_seconds:
        return Verdict(state="stuck", reason=f"{what}: starting for {age:.0f} s", needs="kill")
    return Verdict(state="starting", reason=f"{what}: starting")


def _running(seen: Seen, heartbeat: Heartbeat, pid: str, watched_seconds: float, limits: Limits) -> Verdict:
    if heartbeat.state == "starting":
        return _starting(pid, _age(seen), watched_seconds, limits)
    rows, speed = lag_rows(heartbeat), float(heartbeat.progress.get("rows_per_second") or 0)
    failing = _suspended(heartbeat)
    if rows == 0 and failing:
        return Verdict(state="suspended", reason=f"{pid}, {failing}")
    if rows == 0:
        quiet = _still(seen, heartbeat, "last_commit_at") > limits.quiet_seconds
        return Verdict(state="idle" if quiet else "healthy", reason=f"{pid}, nothing waits")
    wait = "1 row waits" if rows == 1 else f"{rows:,} rows wait"
    if seen.busy_with:
        works = f"{pid} works on {seen.busy_with}; {wait}"
        return Verdict(state="suspended" if failing else "healthy", reason=f"{works}; {failing}" if failing else works)
    still = _still(seen, heartbeat, "last_commit_at", "last_batch_at")
    if min(still, watched_seconds) > limits.no_progress_seconds:
        reason = f"{pid} is alive, {wait}, nothing was committed for {still:.0f} s"
        return Verdict(state="stuck", reason=f"{reason}{_with_error(heartbeat)}", needs="kill")
    if failing:
        return Verdict(state="suspended", reason=f"{pid}, {wait}, {failing}")
    moving = f"{pid}, {wait}, {speed:,.0f} rows/s{_with_error(heartbeat)}"
    return Verdict(state="behind" if rows > limits.behind_rows else "healthy", reason=moving)


def broken_rules(heartbeat: Heartbeat) -> dict[tuple[str, str], int]:
    """Per table and critical rule how many rows of the table break it; two of one name are told together."""
    found: dict[tuple[str, str], int] = {}
    for table, rules in (heartbeat.progress.get("broken") or {}).items():
        for one in rules:
            if one["critical"]:
                found[table, one["rule"]] = found.get((table, one["rule"]), 0) + int(one["rows"])
    return found


def suspended_tables(heartbeat: Heartbeat) -> dict[str, str]:
    """Per table that fails and is tried again, while the others go on, its error."""
    return {table: str(found["error"]) for table, found in (heartbeat.progress.get("suspended") or {}).items()}


def _suspended(heartbeat: Heartbeat) -> str:
    """Tables and copies that fail and are tried again while the others go on; empty if there are none."""
    copies = [str(copy["error"]) for copy in copies_of(heartbeat) if copy["error"]]
    told = "; ".join([*(f"{table}: {error}" for table, error in suspended_tables(heartbeat).items()), *copies])
    return f"suspended and tried again: {told}" if told else ""


def _still(seen: Seen, heartbeat: Heartbeat, *names: str) -> float:
    """Seconds since the latest of these times in the progress, else since the driver's start."""
    times = [time for time in (_time(heartbeat.progress.get(name)) for name in names) if time is not None]
    return max(0.0, (seen.at - max(times)).total_seconds()) if times else _age(seen)


def _age(seen: Seen) -> float:
    """Seconds since the driver started, as far as is known."""
    return (seen.at - seen.launched_at).total_seconds() if seen.launched_at else 0.0


def _leads(lease: Lease | None, driver: Launched) -> bool:
    return lease is not None and (lease.pid, lease.process_started) == (driver.pid, driver.process_started)


def _wish(app: App) -> str:
    if app.desired_by is None:
        return f"never started by anybody; {app.desired} is where an app begins"
    return f"{app.desired} is wanted by {app.desired_by} since {app.desired_at:%Y-%m-%d %H:%M:%S}Z"


def _error(heartbeat: Heartbeat) -> str:
    return str(heartbeat.progress.get("error") or "no reason given")


def _with_error(heartbeat: Heartbeat) -> str:
    error = heartbeat.progress.get("error")
    return f"; {error}" if error else ""


def _time(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
