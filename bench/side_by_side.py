"""The slice by the product and the slice as tutorials write it, side by side: latency, CPU, exact totals."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Annotated

import typer

from bench.sides import Chained, Deltaworks, Side
from bench.stand import PORT_FIRST, run
from bench.turn import Plan, Turn, take_turn
from deltaworks.cli.show import err, listing
from deltaworks.settings import AppSettings

RATES = (200.0, 1000.0)
LATENCY_RATIO_MAX = 0.25
CPU_RATIO_MAX = 0.5
_BOUNDS: Mapping[str, float] = {
    "p50_ms": LATENCY_RATIO_MAX,
    "p95_ms": LATENCY_RATIO_MAX,
    "cpu_seconds": CPU_RATIO_MAX,
}
_COMPARED = ("p50_ms", "p95_ms", "p99_ms", "cpu_seconds")
_TOLD = ("cores", "elsewhere_cores", "catch_up_seconds", "sender_late_ms_max", "probes")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A turn of each side, right after each other."""

    ours: Turn
    theirs: Turn

    def ratio(self, measure: str) -> float:
        """Ours over theirs: below 1 we are better."""
        return float(getattr(self.ours, measure)) / max(float(getattr(self.theirs, measure)), 1e-9)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The pairs of one rate. A ratio is the median of the pairs' ratios: what disturbs one pair disturbs no other."""

    rate: float
    pairs: tuple[Pair, ...]

    def ratio(self, measure: str) -> float:
        """The median ratio."""
        return median(pair.ratio(measure) for pair in self.pairs)

    @property
    def exact(self) -> bool:
        """Whether both sides counted every event once, in every turn."""
        return all(pair.ours.exact and pair.theirs.exact for pair in self.pairs)

    @property
    def ok(self) -> bool:
        """Whether the totals are exact and no bound is missed."""
        return self.exact and all(self.ratio(measure) <= bound for measure, bound in _BOUNDS.items())

    def rows(self) -> list[dict[str, object]]:
        """The lines of the table."""
        rate = f"{self.rate:g}/s"
        compared = [self._row(rate, name, f"{self.ratio(name):.3f}", _BOUNDS.get(name)) for name in _COMPARED]
        told = [self._row(rate, name, None, None) for name in _TOLD]
        return [*compared, *told, self._totals(rate)]

    def _row(self, rate: str, name: str, ratio: str | None, bound: float | None) -> dict[str, object]:
        ours = median(float(getattr(pair.ours, name)) for pair in self.pairs)
        theirs = median(float(getattr(pair.theirs, name)) for pair in self.pairs)
        verdict = None if bound is None else "ok" if self.ratio(name) <= bound else "fail"
        return _line(
            name.replace("_", " "), rate, f"{ours:,.2f}", f"{theirs:,.2f}", ratio, bound and f"{bound:g}", verdict
        )

    def _totals(self, rate: str) -> dict[str, object]:
        def told(turns: Sequence[Turn]) -> str:
            counted, sent = sum(turn.counted for turn in turns), sum(turn.sent for turn in turns)
            return f"all {sent:,}" if all(turn.exact for turn in turns) else f"{counted:,} of {sent:,}"

        ours, theirs = told([pair.ours for pair in self.pairs]), told([pair.theirs for pair in self.pairs])
        return _line("views counted", rate, ours, theirs, None, None, "ok" if self.exact else "fail")


def _line(*cells: object) -> dict[str, object]:
    return dict(zip(("measure", "rate", "deltaworks", "chained", "ratio", "at_most", "verdict"), cells, strict=True))


def compare(plan: Plan, *, repeats: int, dedupe: bool) -> Comparison:
    """Measure `repeats` pairs; who goes first changes from pair to pair (ABBA), so that a drift favours nobody."""
    pairs = []
    for number in range(repeats):
        sides: list[Side] = [Deltaworks(), Chained(dedupe=dedupe)]
        taken = {}
        for side in sides if number % 2 == 0 else reversed(sides):
            err.print(f"{plan.rate:g} events/s, pair {number + 1} of {repeats}: {side.name} ...")
            taken[side.name] = take_turn(side, plan)
        pairs.append(Pair(ours=taken[Deltaworks.name], theirs=taken[Chained.name]))
    return Comparison(rate=plan.rate, pairs=tuple(pairs))


def show(comparisons: Sequence[Comparison], *, as_json: bool) -> None:
    """Print the one table, or everything as JSON."""
    if as_json:
        found = {
            "ok": all(one.ok for one in comparisons),
            "bounds": dict(_BOUNDS),
            "rates": [
                {
                    "rate": one.rate,
                    "ok": one.ok,
                    "exact": one.exact,
                    "ratios": {name: one.ratio(name) for name in _COMPARED},
                    "pairs": [asdict(pair) for pair in one.pairs],
                }
                for one in comparisons
            ],
        }
        print(json.dumps(found, indent=2))
        return
    listing([row for one in comparisons for row in one.rows()], title="Side by side", as_json=False)
    missed = [f"{one.rate:g}/s" for one in comparisons if not one.ok]
    print(f"verdict: {'fail at ' + ', '.join(missed) if missed else 'ok'}")


def main(
    rate: Annotated[list[float] | None, typer.Option(min=1, help="Events per second; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Measured window of each turn.")] = 60,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds before it, from the first row in gold.")] = 60,
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of turns at each rate.")] = 2,
    dedupe: Annotated[bool, typer.Option("--dedupe", help="The chain drops copies too, as the product does.")] = False,
    memory: Annotated[str, typer.Option(help="Heap of either JVM.")] = "1g",
    port_first: Annotated[int, typer.Option(help="The stack takes six ports from here on.")] = PORT_FIRST,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the data folders, with the logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Every turn, as JSON.")] = False,
) -> None:
    """Measure product and tutorial side by side, one after the other, and judge the ratios.

    Exit codes: 0 within the bounds and exact, 1 not, 2 usage, 3 cannot.
    """

    def measure() -> bool:
        comparisons = []
        for events in rate or RATES:
            plan = Plan(
                rate=events,
                seconds=seconds,
                warm_up_seconds=warm_up,
                web=AppSettings(trigger_seconds=0.5, memory=memory),
                port_first=port_first,
                keep=keep,
            )
            comparisons.append(compare(plan, repeats=repeats, dedupe=dedupe))
        show(comparisons, as_json=as_json)
        return all(one.ok for one in comparisons)

    sys.exit(run(measure))


if __name__ == "__main__":
    typer.run(main)
