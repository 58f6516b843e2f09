"""The drill: kill one process after the other under a working shop, and see each time how long gold stays behind."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any

from deltaworks import catalog
from deltaworks.control import Store
from deltaworks.errors import ControlError, StackError
from deltaworks.local import stack
from deltaworks.settings import Settings
from tests.chaos.books import Balance, balance, compare
from tests.chaos.probes import Fresh, Probes
from tests.chaos.shopping import Shopping
from tests.chaos.victims import Victim, kill

FRESH_SECONDS_MAX = 120.0
"""The promise: so long after any one of these deaths gold is fresh again and the victim is back."""
_BEGIN_SECONDS_MAX = 300.0  # Airflow's first look at the DAGs, Spark's start; no promise, only not for ever
_SETTLE_SECONDS_MAX = 300.0
_CHECK_SECONDS = 120.0
_PAUSE_SECONDS = (2.0, 12.0)  # before each kill, by chance: in, before and after a batch, a beat, a commit
_POLL_SECONDS = 0.5  # a look costs, and the drivers need the machine
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one kill did. `back_seconds`: until every part and driver ran again. `restarted`: drivers that are new."""

    victim: Victim
    pid: int
    fresh: Fresh
    back_seconds: float | None
    restarted: Mapping[str, int]

    @property
    def findings(self) -> tuple[str, ...]:
        """What is wrong with it."""
        found = []
        if self.fresh.seconds is None:
            found.append(f"gold not fresh within {FRESH_SECONDS_MAX:g} s")
        if self.back_seconds is None:
            found.append(f"not back within {FRESH_SECONDS_MAX:g} s")
        others = [app for app in self.restarted if not self.victim.may_restart(app)]
        found += [f"driver of {app} was restarted too" for app in others]
        if self.victim.process != "main" and self.back_seconds is not None and self.victim.name not in self.restarted:
            found.append("no new driver took its place")
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Drilled:
    """All that a drill found. `usual_seconds`: what a fresh row took without a fault, the median."""

    usual_seconds: float
    outcomes: tuple[Outcome, ...]
    sent: Mapping[str, Any]
    ledger: Balance
    compared: Sequence[Mapping[str, Any]]

    @property
    def findings(self) -> tuple[str, ...]:
        """Everything that is wrong; nothing is what is promised."""
        found = [f"{one.victim}: {finding}" for one in self.outcomes for finding in one.findings]
        found += [f"ledger: {finding}" for finding in self.ledger.findings]
        wrong = [row for row in self.compared if row["verdict"] != "ok"]
        found += [f"{row['comparison']}: {'; '.join(row['differences'])}" for row in wrong]
        return tuple(found)


def drill(
    settings: Settings, victims: Iterable[Victim], *, chance: Random, usual_probes: int = 5, say: Say = print
) -> Drilled:
    """Run the drill on a stack that is up; what it sends and kills follows from `chance`, its time does not."""
    seed = chance.randrange(2**31)
    patience = 2 * FRESH_SECONDS_MAX
    with (
        Store(settings.control_dsn()) as store,
        Probes(settings, run=f"{seed}-{time.time_ns()}", patience_seconds=patience) as probes,
        Shopping(settings, seed=seed) as shopping,
    ):
        watch = _Watch(settings, store)
        _begin(watch, probes, shopping, say)
        usual = _usual(probes, shopping, usual_probes)
        say(f"without a fault a fresh row is in gold after {usual:.1f} s (median of {usual_probes})")
        outcomes = []
        for victim in victims:
            time.sleep(chance.uniform(*_PAUSE_SECONDS))
            outcomes.append(_kill(settings, store, watch, probes, shopping, victim))
            say(_told(outcomes[-1]))
        sent = shopping.stop()
    ledger = balance(settings, seconds_max=_SETTLE_SECONDS_MAX)
    say(f"the ledger {'is red or behind' if ledger.findings else 'balances'} after {ledger.seconds:.1f} s")
    compared = compare(settings, wait_seconds=_CHECK_SECONDS)
    return Drilled(usual_seconds=usual, outcomes=tuple(outcomes), sent=sent, ledger=ledger, compared=compared)


class _Watch:
    """Tells whether everything runs that should; a simulator that is held does not matter."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self.apps = catalog.load(settings.project).apps

    def want_running(self) -> None:
        """Have Airflow keep the drivers of all apps running."""
        self._store.declare_apps(self.apps)
        for app in self.apps:
            self._store.desire(app, "running", by="chaos", reason="a drill")

    def epochs(self) -> dict[str, int]:
        """Epoch of each app's last lease: every new driver has one more."""
        leases = {app: self._store.lease(app) for app in self.apps}
        return {app: lease.epoch if lease else 0 for app, lease in leases.items()}

    def well(self, *, but: int = 0) -> bool:
        """Whether all parts are ready, none of them with the pid `but`, and a driver of each app is at work."""
        parts = [one for one in stack.state(self._settings).parts.values() if one.of in stack.SERVICES]
        if any(one.pid == but or one.state != ("done" if one.step else "ready") for one in parts):
            return False
        try:
            return all(self._at_work(app) for app in self.apps)
        except ControlError:
            return False

    def _at_work(self, app: str) -> bool:
        lease, heartbeat = self._store.lease(app), self._store.heartbeat(app)
        if lease is None or heartbeat is None or not lease.live or lease.released_at is not None:
            return False
        return heartbeat.epoch == lease.epoch and heartbeat.state == "running" and heartbeat.age_seconds < 5


def _begin(watch: _Watch, probes: Probes, shopping: Shopping, say: Say) -> None:
    """Wait until rows flow from both sources into gold; the first probe warms up what the others measure."""
    watch.want_running()
    began = time.monotonic()
    while not (watch.well() and probes.has_rows()):
        shopping.must_go_on()
        if time.monotonic() - began > _BEGIN_SECONDS_MAX:
            raise StackError("gold", f"no rows after {_BEGIN_SECONDS_MAX:g} s", 'Run "deltaworks logs app-shop"')
        time.sleep(_POLL_SECONDS)
    if probes.fresh(since=time.monotonic(), seconds_max=_BEGIN_SECONDS_MAX).seconds is None:
        raise StackError("gold", "the first probes did not arrive", 'Run "deltaworks logs app-shop"')
    say(f"the drivers are at work and gold is fresh, {time.monotonic() - began:.0f} s after the shop opened")


def _usual(probes: Probes, shopping: Shopping, count: int) -> float:
    found = []
    for _ in range(count):
        fresh = probes.fresh(since=time.monotonic(), seconds_max=FRESH_SECONDS_MAX, meanwhile=shopping.must_go_on)
        if fresh.seconds is None:
            raise StackError("gold", "was not fresh before anything was killed", "See the logs of the apps")
        found.append(fresh.seconds)
    return median(found)


def _kill(
    settings: Settings, store: Store, watch: _Watch, probes: Probes, shopping: Shopping, victim: Victim
) -> Outcome:
    before = watch.epochs()
    pid = kill(settings, store, victim)
    killed = time.monotonic()
    fresh = probes.fresh(since=killed, seconds_max=FRESH_SECONDS_MAX, meanwhile=shopping.must_go_on)
    back = None
    while back is None and time.monotonic() - killed < FRESH_SECONDS_MAX:
        shopping.must_go_on()
        if watch.well(but=pid):
            back = time.monotonic() - killed
        time.sleep(_POLL_SECONDS)
    restarted = {app: epoch - before[app] for app, epoch in watch.epochs().items() if epoch != before[app]}
    return Outcome(victim=victim, pid=pid, fresh=fresh, back_seconds=back, restarted=restarted)


def _told(outcome: Outcome) -> str:
    fresh = outcome.fresh.seconds
    when = "not fresh again" if fresh is None else f"gold fresh again after {fresh:.1f} s"
    when += ", not all back" if outcome.back_seconds is None else f", all back after {outcome.back_seconds:.1f} s"
    return f"killed {outcome.victim} ({outcome.victim.process}, pid {outcome.pid}): {when}"
