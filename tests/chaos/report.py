"""What the chaos drill did and found: JSON for each run, and of all runs together the page docs/chaos.md.

    .venv/spark/bin/python -m tests.chaos.report

A fault that was done several times is shown as it was the last time; every seed that was drawn from is shown.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import typer

from deltaworks.errors import StackError
from deltaworks.local.chaos.faults import FAULTS
from deltaworks.settings import ROOT

PAGE, README = ROOT / "docs" / "chaos.md", ROOT / "README.md"
BEGIN, END = "<!-- chaos: written by tests.chaos.report -->", "<!-- chaos ends -->"
_HEAD = """# Chaos

Written by `.venv/spark/bin/python -m tests.chaos.report`, not by hand, from what the drill of `make proof` found.
Faults can be done in single runs too: a fault's line is of the last run that did it.

Each fault is really done to a running local stack: Kafka, Connect, two Postgres servers, Airflow, a Spark driver.
All the time five senders number their events from 1 on, and money changes hands in Postgres. After each fault

- every number of every sender is in silver once,
- all balances together are 0 in every version of gold,
- the ledger balances, and the checker finds nothing (I1, I2, I7),
- every part runs, and every table contains what the sources had when the fault ended.

At the end, at rest, nothing is left to take (I6), the lake equals the source (I3), and gold counts every number once.

*Recovery* is the time from the end of the fault until then, as a multiple of that after a plain restart of the app in
the same run. It says as much about the machine as about the product.

A seed draws again how long a fault lasts, which process it meets and the like, not how processes interleave:

```
.venv/spark/bin/python -m tests.chaos.faults --fault FAULT --seed SEED
.venv/spark/bin/python -m tests.chaos.faults --no-every --sequence SEED        of faults one upon the other
```

`deltaworks chaos run FAULT --seed SEED` does the same to your own stack:
[break it yourself](how-to/break-it-yourself.md).
"""
REST = "at rest"


@dataclass(frozen=True, kw_only=True)
class Done:
    """One fault, or several drawn from a seed; `times`: the recovery, as a multiple of that of a plain restart."""

    what: str
    seed: int
    seconds: float | None = None
    times: float | None = None
    findings: tuple[str, ...] = ()
    skipped: str = ""
    drawn: bool = False

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.skipped:
            return f"skipped: {self.skipped}"
        return f"{len(self.findings)} findings" if self.findings else "held"

    def __str__(self) -> str:
        """One line, and one more for each finding."""
        times = "" if self.times is None else f", recovered in {self.times:.2f} x a plain restart"
        return "\n         ".join((f"{self.what} (seed {self.seed}): {self.verdict}{times}", *self.findings))


@dataclass(kw_only=True)
class Drill:
    """All of one run, written after each step: one that is cut short has a report too. `seed`: of the whole run."""

    seed: int
    began: str = field(default_factory=lambda: time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
    done: list[Done] = field(default_factory=list)

    @property
    def findings(self) -> int:
        """How many in all."""
        return sum(len(one.findings) for one in self.done)

    def add(self, one: Done, folder: Path) -> None:
        """Take note, and write."""
        self.done.append(one)
        folder.mkdir(parents=True, exist_ok=True)
        done = [asdict(one) for one in self.done]
        data = {"began": self.began, "seed": self.seed, "findings": self.findings, "done": done}
        (folder / f"chaos-{self.began}.json").write_text(json.dumps(data, indent=2) + "\n")

    def summary(self) -> str:
        """One line."""
        single = sum(not one.skipped and not one.drawn and one.what != REST for one in self.done)
        skipped, drawn = sum(bool(one.skipped) for one in self.done), sum(one.drawn for one in self.done)
        return f"{single} faults, {skipped} skipped, {drawn} seeds, {self.findings} findings"


def read(folder: Path) -> list[Done]:
    """Every run's, oldest first."""
    runs = [json.loads(path.read_text())["done"] for path in sorted(folder.glob("chaos-*.json"))]
    return [Done(**{**one, "findings": tuple(one["findings"])}) for run in runs for one in run]


def page(done: Sequence[Done]) -> str:
    """The page: every fault of the kit, whether it was done or not, and every seed."""
    last = {one.what: one for one in done if not one.drawn}
    lines = [_HEAD, f"{_summary(done)}\n", "## Every fault once\n"]
    lines += ["| fault | what is done | undone by | what must hold | verdict | recovery | seed |", f"|{' --- |' * 7}"]
    for one in FAULTS:
        found = last.get(one.name)
        verdict = "not done yet" if found is None else found.verdict
        seed = "" if found is None else str(found.seed)
        cells = (f"`{one.name}`", one.does, one.undone, one.holds, verdict, _times(found), seed)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["\n## Drawn from seeds\n", "Two or three faults, each upon the recovery of the one before.\n"]
    lines += ["| seed | faults | verdict | recovery |", f"|{' --- |' * 4}"]
    lines += [f"| {one.seed} | {one.what} | {one.verdict} | {_times(one)} |" for one in done if one.drawn]
    return "\n".join(lines) + "\n"


def short(done: Sequence[Done]) -> str:
    """The README's table: which faults held, how long recoveries took, and where the seeds are."""
    last = {one.what: one for one in done if not one.drawn}
    rows: dict[str, list[str]] = {}
    for one in FAULTS:
        found = last.get(one.name)
        verdict = "not done yet" if found is None else found.verdict.partition(":")[0]
        rows.setdefault(verdict, []).append(f"`{one.name}`")
    table = [
        "| verdict | faults |",
        "| --- | --- |",
        *(f"| {verdict} | {', '.join(of)} |" for verdict, of in rows.items()),
    ]
    seeds = "Every fault's seed, to do it again: [docs/chaos.md](docs/chaos.md)."
    return "\n".join([*table, "", _summary(done), f"{_recoveries(done)}{seeds}"])


def _summary(done: Sequence[Done]) -> str:
    single = {one.what: one for one in done if not one.drawn and not one.skipped and one.what != REST}
    drawn = [one for one in done if one.drawn]
    found = sum(len(one.findings) for one in [*single.values(), *drawn, *(one for one in done if one.what == REST)])
    return f"{len(single)} of {len(FAULTS)} faults done, {len(drawn)} seeds drawn, {found} violations."


def _times(done: Done | None) -> str:
    return "" if done is None or done.times is None else f"{done.times:.2f} x"


def _recoveries(done: Sequence[Done]) -> str:
    """From the shortest to the longest: of what the page shows, but for the restart that they are measured by."""
    last = {one.what: one for one in done if not one.drawn}
    single = [last[one.name] for one in FAULTS if one.name in last and one.name != "restart"]
    ranges = (_range(single, "after one fault"), _range([one for one in done if one.drawn], "after those of one seed"))
    told = ", ".join(filter(None, ranges))
    return f"Recovery, as a multiple of that after a plain restart: {told}. " if told else ""


def _range(done: Sequence[Done], after: str) -> str:
    times = [one.times for one in done if one.times is not None]
    return f"{min(times):.2f} to {max(times):.2f} x {after}" if times else ""


def main(folder: Path = ROOT / ".deltaworks" / "proof") -> None:
    """Write docs/chaos.md and the README's table anew from the runs of a folder."""
    done = read(folder)
    if not done:
        raise StackError(str(folder), "has no run of the drill", 'Run "make proof"')
    write(done)


def write(done: Sequence[Done]) -> None:
    """Write docs/chaos.md and the README's table anew."""
    PAGE.write_text(page(done))
    before, mark, rest = README.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    assert mark, f"{BEGIN} is missing in {README}"
    assert end, f"{END} is missing in {README}"
    README.write_text(f"{before}{BEGIN}\n{short(done)}\n{END}{after}")


if __name__ == "__main__":
    typer.run(main)
