"""`profile`: where the last turns of an app went."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from deltaworks.cli import show
from deltaworks.cli.context import settings
from deltaworks.errors import QueryError
from deltaworks.query.text import literal

PHASES = ("read", "parse", "compute", "commit", "other")  # as the engine names them, which is not imported here
_TURNS = "ops.turns"
_SUMS = ", ".join(f"sum({name}_ms)" for name in PHASES)
_NOBODY = "not told yet: no driver has computed it lately"


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command()(profile)


def profile(
    app: Annotated[str, typer.Argument(help="Name of the app.")],
    *,
    minutes: Annotated[int, typer.Option(min=1, help="Of how many minutes before now.")] = 15,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show where an app's last turns went, the dearest table first: milliseconds per turn, by what it did."""
    from deltaworks import catalog

    now = settings()
    catalog.load(now.project).app(app)  # raises, with the names that there are
    profiles = _profiles(now.lake, app, datetime.now(UTC) - timedelta(minutes=minutes))
    lines = _lines(profiles)
    if as_json:
        show.listing(lines, title="profile", as_json=True)
        return
    title = f"Turns of {app} in the last {minutes} min, milliseconds per turn"
    show.listing(
        [{name: value for name, value in line.items() if name != "seconds"} for line in lines],
        title=title,
        as_json=False,
        empty="none told; a driver tells them once a minute while rows come",
    )
    if lines:
        seconds = sum(one.milliseconds for one in profiles) / 1_000
        share = f"{seconds / minutes / 0.6:.0f} % of that time"
        show.out.print(f"\nTogether {seconds:,.1f} s of turns in {minutes} min, {share}")


def way_of(lake: Path, table: str) -> str:
    """Which way a table's transform went last, as its app told, and why; in words where that cannot be read."""
    sql = (
        f"select way, why from {_TURNS} where table_name = {literal(table)} and way <> 'none'"  # noqa: S608  # quoted
        " order by told_at desc, turns desc limit 1"
    )
    try:
        rows = list(_asked(lake, sql))
    except QueryError as error:  # what a table declares can be read without a lake
        return f"not known: {error}"
    for way, why in rows:
        return str(way) if why is None else f"{way}: {why}" if way == "ordinary" else f"{way}; ordinary: {why}"
    return _NOBODY


@dataclass(kw_only=True)
class _Profile:
    """Sums over a table's turns."""

    table: str
    turns: int = 0
    rows: int = 0
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    ways: dict[str, int] = field(default_factory=dict)
    """Turns that went each way."""
    whys: dict[str, int] = field(default_factory=dict)

    @property
    def milliseconds(self) -> float:
        return sum(self.phases.values())

    @property
    def way(self) -> str:
        """The one that most turns went, and how many where others went otherwise."""
        ways = {way: turns for way, turns in self.ways.items() if way != "none"}
        if not ways:
            return "none"
        way = max(ways, key=lambda one: ways[one])
        return way if len(ways) == 1 else f"{way} {ways[way]} of {sum(ways.values())}"

    @property
    def why(self) -> str | None:
        return max(self.whys, key=lambda one: self.whys[one], default=None)


def _profiles(lake: Path, app: str, since: datetime) -> list[_Profile]:
    """One for each table that had turns since then, and for the micro-batches; what took longest comes first."""
    found: dict[str, _Profile] = {}
    rows = _asked(
        lake,
        f"select table_name, way, why, sum(turns), sum(rows), {_SUMS} from {_TURNS}"  # noqa: S608  # quoted
        f" where app = {literal(app)} and told_at > timestamptz {literal(since.isoformat())} group by all",
    )
    for table, way, why, turns, taken, *phases in rows:
        one = found.setdefault(str(table), _Profile(table=str(table)))
        one.turns += _number(turns)
        one.rows += _number(taken)
        for name, milliseconds in zip(PHASES, phases, strict=True):
            assert isinstance(milliseconds, float)
            one.phases[name] += milliseconds
        one.ways[str(way)] = one.ways.get(str(way), 0) + _number(turns)
        if why is not None:
            one.whys[str(why)] = one.whys.get(str(why), 0) + _number(turns)
    return sorted(found.values(), key=lambda one: one.milliseconds, reverse=True)


def _lines(profiles: list[_Profile]) -> list[dict[str, object]]:
    total = sum(one.milliseconds for one in profiles)
    return [
        {
            "table": one.table,
            "turns": one.turns,
            "rows": one.rows,
            **{name: round(one.phases[name] / one.turns, 1) for name in PHASES},
            "turn": round(one.milliseconds / one.turns, 1),
            "seconds": round(one.milliseconds / 1_000, 3),
            "share": f"{one.milliseconds / total:.0%}" if total else "-",
            "way": one.way,
            "why": one.why,
        }
        for one in profiles
    ]


def _asked(lake: Path, sql: str) -> Iterator[tuple[object, ...]]:
    """Rows of an answer; none where no driver has told of turns."""
    from deltaworks.analyst import connect

    with connect(lake) as analyst:
        if _TURNS in analyst.tables():
            yield from analyst.sql(sql).rows


def _number(value: object) -> int:
    """DuckDB sums integers in 128 bits."""
    return int(str(value))
