"""The whole shop under Airflow at the simulator's own rate: how old rows are when gold has them, what each app costs.

    .venv/spark/bin/python bench/whole.py --minutes 30
    .venv/spark/bin/python bench/whole.py --minutes 10 --against REVISION --pairs 2

Exit code 1 if the lag of an app or the number of its tables behind grows, if a table was suspended or a critical rule
broken, if a marked event did not come to its table, or if all that runs takes more than 8 GB.
"""

import json
import sys
from dataclasses import asdict
from statistics import fmean
from typing import Annotated, Any

import typer

from bench.checkout import Checkout, checkouts
from bench.measurement import Measurement, Plan, measure
from bench.revisions import Sitting, sit
from bench.stand import PORT_FIRST, run
from deltaworks.cli.show import listing, out
from deltaworks.settings import ROOT, Settings


def simulator(rate: float | None) -> tuple[str, ...]:
    """Module and arguments of the project's simulator, with another rate of page views if one is given.

    Every checkout gets the arguments of this one: both sides of a comparison have the same load.
    """
    declared = Settings.load(ROOT, environment={}).processes["simulator"].run
    return declared if rate is None else (*declared, "--rate", f"{rate:g}")  # of an option given twice the last counts


def show(name: str, found: Measurement) -> None:
    """Print what was found of one checkout."""
    window = found.window
    costs = [
        {
            "app": app,
            "cores": f"{one.cores:.2f}",
            "memory GB": f"{max(one.memory) / 10**9:.2f}",
            "s between batches": f"{one.batch_seconds:.1f}",
            "s to first gold": _seconds(found.first_gold_seconds.get(app)),
            "of these its driver": _seconds(found.driver_seconds.get(app)),
            "s from kill -9 to fresh gold": _seconds(found.recovery_seconds.get(app)),
        }
        for app, one in window.apps.items()
    ]
    lags = [
        {
            "app": app,
            "lag": fmean(one.lag),
            "lag per hour": str(one.slope(one.lag)),
            "tables behind": fmean(one.behind),
            "behind per hour": str(one.slope(one.behind)),
            "suspended": ", ".join(sorted(one.suspended)) or None,
            "broken rules": ", ".join(sorted(one.broken)) or None,
            "keeps up": one.keeps_up,
        }
        for app, one in window.apps.items()
    ]
    ages = [
        {"from an event to its row": route, **{title: _seconds(value) for title, value in asdict(one).items()}}
        for route, one in {**window.ages, "event to gold": window.to_gold}.items()
    ]
    listing(ages, title=f"The shop at work, {name}: seconds from an event to its row", as_json=False)
    listing(costs, title="What it costs", as_json=False)
    listing(lags, title="Whether it keeps up", as_json=False)
    lake = window.written
    out.print(f"written an hour: {lake.files:,.0f} files, {lake.commits:,.0f} commits, {lake.bytes / 10**6:,.0f} MB")
    asked = found.query_seconds
    slowest = max(asked, key=lambda question: asked[question])
    out.print(
        f"{len(asked)} queries of gold took {sum(asked.values()):.2f} s, the slowest ({slowest}) {asked[slowest]:.2f} s"
    )
    out.print(f"all that ran took {window.memory_bytes_max / 10**9:.1f} GB at most")
    out.print(
        f"the drivers kept {sum(one.cores for one in window.apps.values()):.2f} cores busy, all else "
        f"{window.elsewhere_cores:.2f}, this program {window.own_cores:.2f} of that; "
        f"marks were sent up to {window.late_seconds_max:.2f} s late"
    )


def as_document(sitting: Sitting) -> dict[str, Any]:
    """Everything, for programs."""
    document: dict[str, Any] = {
        "ok": sitting.ok,
        "checkouts": {
            name: [
                {
                    "ok": one.ok,
                    "figures": one.figures(),
                    "keeps_up": {app: watched.keeps_up for app, watched in one.window.apps.items()},
                    **asdict(one),
                }
                for one in found
            ]
            for name, found in sitting.measured.items()
        },
    }
    return document | ({"ratios": sitting.ratios()} if len(sitting.measured) > 1 else {})


def _seconds(value: float | None) -> object:
    return f"{value:.{2 if value < 10 else 1}f}" if isinstance(value, float) else value


def main(
    minutes: Annotated[float, typer.Option(min=2, help="How long it is watched.")] = 30,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds from the drivers' start until then.")] = 300,
    marks: Annotated[int, typer.Option(min=20, help="Marked events of each kind, meanwhile.")] = 120,
    rate: Annotated[float | None, typer.Option(min=1, help="Page views a second; default: deltaworks.toml's.")] = None,
    kill: Annotated[bool, typer.Option(help="Then kill each driver, and wait for fresh gold.")] = True,
    against: Annotated[str | None, typer.Option(help="Measure this revision, or set-up checkout, too.")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="How often both are measured, in alternating order.")] = 1,
    port_first: Annotated[int, typer.Option(help="The stack takes its ports from here on.")] = PORT_FIRST,
    keep: Annotated[bool, typer.Option("--keep", help="Leave data folders and checkout.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Measure the whole shop. Exit codes: 0 it keeps up, 1 it does not, 2 usage, 3 cannot."""

    def judged() -> bool:
        plan = Plan(
            simulator=simulator(rate),
            minutes=minutes,
            warm_up=warm_up,
            marks=marks,
            kill=kill,
            port_first=port_first,
            keep=keep,
        )

        def measured(checkout: Checkout) -> Measurement:
            found = measure(checkout, plan)
            if not as_json:
                show(checkout.name, found)
            return found

        with checkouts(against, keep=keep) as chosen:
            sitting = sit(chosen, measured, pairs=pairs if against else 1)
        if as_json:
            print(json.dumps(as_document(sitting), indent=2, default=sorted))  # sets are lists in JSON
        elif against:
            listing(sitting.rows(), title="Side by side", as_json=False)
        return sitting.ok

    sys.exit(run(judged))


if __name__ == "__main__":
    typer.run(main)
