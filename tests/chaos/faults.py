"""Every fault of the kit once against a real stack, then faults drawn from seeds, one upon the other; writes a report.

    .venv/spark/bin/python -m tests.chaos.faults --fault broker-down --fault disk-full --seed 7
    .venv/spark/bin/python -m tests.chaos.faults --no-every --sequence 7

Numbered events and money flow all the time. After each fault every number of every sender must be there once, money
must be conserved in every version of gold, the ledger must balance, the checker must find nothing, all must run again.
"""

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random, SystemRandom
from typing import Annotated, Any

import deltalake
import psycopg
import pyarrow.compute as pc
import typer
from confluent_kafka import KafkaException

from deltaworks import catalog, processes
from deltaworks.analyst import connect
from deltaworks.cli.recovery import not_well, recover, scene_of, with_taken
from deltaworks.cli.show import err, out
from deltaworks.control import Store
from deltaworks.engine.balance import balance
from deltaworks.engine.checker import Picture, check
from deltaworks.engine.checker.source import equals_source
from deltaworks.engine.stretches import micros
from deltaworks.errors import DeltaworksError, QueryError
from deltaworks.local.chaos import broker
from deltaworks.local.chaos.fault import Fault, Say, Scene, chance_of
from deltaworks.local.chaos.faults import FAULTS, fault
from deltaworks.settings import ROOT, Settings
from tests.chaos import spare
from tests.chaos.bank import running_bank
from tests.chaos.report import Done, Drill, write
from tests.chaos.traffic import SENDERS, Traffic
from tests.running_stack import wait_until

SPARE = ("retention-passed", "topic-recreated")
"""Done to a topic and an app of their own: what they take away would be missing for all that come after."""
BEGIN_SECONDS_MAX = 300.0
LATE_MAX = timedelta(hours=12)
"""No run takes so long, so no event of it is so late; were a clock of 2099 believed, all would be."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What was sent when a fault had ended: the highest number taken per sender, and the last transfer."""

    sent: Mapping[int, int]
    transferred: int


class Drilling:
    """A running bank with its traffic, and what was taken away so far."""

    def __init__(self, settings: Settings, store: Store, traffic: Traffic, say: Say) -> None:
        """Nothing is done yet."""
        self.settings, self.store, self.traffic, self.say = settings, store, traffic, say
        self.lost: dict[str, int] = {}
        self.plain_seconds: float | None = None
        self._looked, self._ahead = -1, 0

    def begin(self) -> None:
        """Wait until both sources are in gold, then restart the app once: what recoveries are measured by."""
        wait_until(self._flows, what="rows in gold", seconds_max=BEGIN_SECONDS_MAX)
        self.say("rows of both sources are in gold")

    def once(self, one: Fault, seed: int) -> Done:
        """Do one fault and judge."""
        chance, alone = chance_of(one.name, seed), one.name in SPARE
        scene = self._scene(chance, *(("spare", spare.TOPIC) if alone else ("bank", "numbered")))
        if why := one.missing(scene):
            return Done(what=one.name, seed=seed, skipped=why)
        if alone:
            self._want_spare()
        try:
            found = self._inflicted(one, scene)
            return self._recovered(scene, Done(what=one.name, seed=seed, findings=found), self._apps(alone))
        finally:
            if alone:
                self.store.desire("spare", "stopped", by="chaos", reason="a drill")

    def drawn(self, seed: int) -> Done:
        """Two or three faults that the seed draws, each upon the other's recovery."""
        chance = Random(seed)
        drawn = chance.sample([one for one in FAULTS if one.name not in ("restart", *SPARE)], chance.choice((2, 2, 3)))
        scene = self._scene(chance, "bank", "numbered")
        able = [one for one in drawn if not one.missing(scene)]
        found: tuple[str, ...] = ()
        for one in able:
            found += self._inflicted(one, scene)
            scene.wait(scene.seconds(0, 5))
        done = Done(what=", ".join(one.name for one in able), seed=seed, drawn=True, findings=found)
        return self._recovered(scene, done, self._apps())

    def end(self, seed: int) -> Done:
        """With everything at rest: nothing is left to take, the lake equals the source, gold has every number once."""
        settled = recover(self._scene(Random(seed), "bank", "numbered"), apps=self._apps(), lost=self.lost)
        mark = Mark(sent=dict(self.traffic.sent), transferred=self.traffic.transferred)
        for app in ("bank", "spare"):
            self.store.desire(app, "stopped", by="chaos", reason="a drill")
        wait_until(self._at_rest, what="the drivers' end", seconds_max=120)
        with Picture(catalog.load(self.settings.project), self.settings.lake) as picture:
            found = [*check(picture, at_rest=True), *equals_source(picture, self.settings.source_dsn())]
        findings = (*settled.findings, *map(str, found), *self._numbers(mark), *self._money(), *self._gold(mark))
        return Done(what="at rest", seed=seed, findings=findings)

    def _inflicted(self, one: Fault, scene: Scene) -> tuple[str, ...]:
        """Do a fault; what kept it from being done, or from being repaired as printed, is a finding."""
        try:
            self.lost = dict(with_taken(self.lost, one.inflict(scene)))
        except (DeltaworksError, psycopg.Error, KafkaException, TimeoutError) as error:
            return (f"{one.name}: {error}",)
        self._ahead += broker.AHEAD if one.name == "clock-in-2099" else 0
        return ()

    def _recovered(self, scene: Scene, done: Done, apps: Sequence[str]) -> Done:
        """Wait for what was sent until now, and judge."""
        mark = Mark(sent=dict(self.traffic.sent), transferred=self.traffic.transferred)
        ends = spare.ends(self.settings) if spare.TOPIC in apps else None
        recovery = recover(scene, apps=apps, lost=self.lost)
        if done.what == "restart" and self.plain_seconds is None:
            self.plain_seconds = recovery.seconds
        times = None if self.plain_seconds is None else recovery.seconds / self.plain_seconds
        findings = (
            *done.findings, *recovery.findings, *self._numbers(mark), *self._money(),
            *([] if ends is None else spare.otherwise(self.settings, ends)), *self.traffic.errors,
        )  # fmt: skip
        return replace(done, seconds=recovery.seconds, times=times, findings=findings)

    def _numbers(self, mark: Mark) -> Iterator[str]:
        """Where a number that was taken is missing or there twice; what comes later may be there or not."""
        found = {
            row[0]: row[1:]
            for row in self._rows(
                "select sender, count(*), count(distinct number), max(number) from silver.numbered group by 1"
            )
        }
        for sender in range(1, SENDERS + 1):
            count, different, last = found.get(sender, (0, 0, 0))
            if not (count == different == last and last >= mark.sent.get(sender, 0) > 0):
                yield (
                    f"sender {sender}: {count} rows, {different} numbers up to {last}, {mark.sent.get(sender, 0)} sent"
                )
        count, different, last = self._rows(
            "select count(*), count(distinct transfer_id), max(transfer_id) from silver.transfers"
        )[0]
        if not (count == different == last and last >= mark.transferred > 0):
            yield f"transfers: {count} rows, {different} numbers up to {last}, {mark.transferred} made"

    def _gold(self, mark: Mark) -> Iterator[str]:
        """Where gold's counts are not those of every number once, or a wrong clock made others late."""
        for sender, events, total, last in self._rows("select sender, events, total, last from gold.senders"):
            if not (events == last == mark.sent[sender] and total == last * (last + 1) // 2):
                yield f"gold.senders {sender}: {events} events, sum {total}, last {last}, {mark.sent[sender]} sent"

        path = self.settings.lake / "silver" / "numbered__quarantine"
        aside = deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist() if path.exists() else []
        events = {row["value"] for row in aside}  # the copies that another fault sends are set aside too
        if len(events) != self._ahead or {row["reason"] for row in aside} - {"sent_at: future"}:
            yield f"{len(events)} events were set aside, {self._ahead} were sent from 2099"
        numbered = deltalake.DeltaTable(str(self.settings.lake / "silver" / "numbered"))
        latest = pc.max(numbered.to_pyarrow_table(columns=["_late_by"])["_late_by"]).as_py()
        if latest > micros(LATE_MAX):
            yield f"an event is late by {timedelta(microseconds=latest)}: a clock was believed"

    def _money(self) -> Iterator[str]:
        """Versions of gold since the last look whose balances together are not 0."""
        path = self.settings.lake / "gold" / "balances"
        newest = deltalake.DeltaTable(str(path)).version()
        for version in range(self._looked + 1, newest + 1):
            rows = deltalake.DeltaTable(str(path), version=version).to_pyarrow_table(columns=["balance"])
            if total := pc.sum(rows["balance"]).as_py():
                yield f"gold.balances version {version}: all together are {total}"
        self._looked = newest

    def _rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        with connect(self.settings.lake) as lake:
            return lake.sql(sql).rows

    def _scene(self, chance: Random, app: str, topic: str) -> Scene:
        return scene_of(self.settings, self.store, chance=chance, app=app, topic=topic, say=self.say)

    def _apps(self, alone: bool = False) -> list[str]:
        return ["bank", "spare"] if alone else ["bank"]

    def _want_spare(self) -> None:
        self.store.desire("spare", "running", by="chaos", reason="a drill")
        wait_until(lambda: not not_well(self.settings, self.store, ["spare"]), what="a driver", seconds_max=120)
        balanced = balance(self.settings, seconds_max=120, apps=["spare"], lost=self.lost)
        assert not balanced.findings, balanced.findings

    def _at_rest(self) -> bool:
        leases = [self.store.lease(app) for app in ("bank", "spare")]
        return not any(one is not None and processes.lives(one.pid, one.process_started) for one in leases)

    def _flows(self) -> bool:
        try:
            return all(self._rows(f"select 1 from gold.{name} limit 1") for name in ("senders", "balances"))
        except QueryError:
            return False


def main(
    fault_names: Annotated[
        list[str] | None,
        typer.Option("--fault", help="Only these; default: every one, and the restart that times are told in."),
    ] = None,
    every: Annotated[bool, typer.Option(help="Do every fault once; without: only what seeds draw.")] = True,
    seed: Annotated[int | None, typer.Option(help="Decides all that is drawn; default: by chance.")] = None,
    sequences: Annotated[
        list[int] | None,
        typer.Option("--sequence", help="Seed of faults drawn, one upon the other, as reported; may be repeated."),
    ] = None,
    random_seeds: Annotated[int, typer.Option(min=0, help="So many such seeds more, drawn from --seed.")] = 0,
    to: Annotated[Path, typer.Option(help="Folder of the report.")] = ROOT / ".deltaworks/proof",
    page: Annotated[bool, typer.Option("--page", help="Write docs/chaos.md and the README's table too.")] = False,
) -> None:
    """Do faults, wait, judge, report. Exit code 1 if anything was found."""
    one_by_one = [fault(name) for name in fault_names or []] or (list(FAULTS) if every else [])
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    drawn = [*(sequences or []), *seeds_of(seed, random_seeds)]
    if not one_by_one and not drawn:
        raise typer.BadParameter("nothing to do: name a --fault or a --sequence, or leave --no-every out")
    done, clock = Drill(seed=seed), _Clock()
    clock.say(f"seed {seed}")
    with ExitStack() as held:
        settings = held.enter_context(running_bank())
        clock.say(f"the stack is up in {settings.data}")
        store = held.enter_context(Store(settings.control_dsn(), application="chaos"))
        with Traffic(settings, seed=seed) as traffic:
            drilling = Drilling(settings, store, traffic, clock.say)
            drilling.begin()
            for one in one_by_one:
                done.add(clock.told(drilling.once(one, seed)), to)
            for each in drawn:
                done.add(clock.told(drilling.drawn(each)), to)
        done.add(clock.told(drilling.end(seed)), to)
        if page:
            write(done.done)
        if done.findings:
            raise typer.Exit(1)  # here, so that the scratch folder stays
    clock.say(done.summary())


def seeds_of(seed: int, count: int) -> list[int]:
    """Seeds of faults drawn, one upon the other: the first ones are the same however many are wanted."""
    chance = chance_of("sequences", seed)
    return [chance.randrange(2**32) for _ in range(count)]


class _Clock:
    """Says what happened and when, in seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """One line with the time."""
        out.print(f"{time.monotonic() - self._began:6.0f} s  {text}", markup=False, soft_wrap=True)

    def told(self, done: Done) -> Done:
        """Say how it went."""
        self.say(str(done))
        return done


def run() -> None:
    """Run the command line; exit codes: 0 nothing found, 1 something, 2 usage, 3 cannot, 130 interrupted."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        typer.run(main)
    except DeltaworksError as error:
        err.print(str(error), style="red", soft_wrap=True, markup=False)
        sys.exit(3)


def _interrupt(*_: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a second one must not cut the cleaning up short
    raise KeyboardInterrupt


if __name__ == "__main__":
    run()
