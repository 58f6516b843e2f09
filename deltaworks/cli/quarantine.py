"""`deltaworks quarantine`: what was set aside, why, and what to do about it. Reads with DuckDB; needs no JVM."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from deltaworks.cli import show
from deltaworks.cli.actors import ASKED, By, Reason
from deltaworks.cli.compute_again import record
from deltaworks.cli.context import settings

if TYPE_CHECKING:
    from deltaworks.analyst import Analyst
    from deltaworks.catalog import Catalog

_CAUSES = """
    select reason, count(*) as rows, min("timestamp") as first_seen, max("timestamp") as last_seen,
        arg_max(struct_pack(topic, "partition", "offset"), ("timestamp", "offset")) as sample,
        arg_max(code, "_seq") as code, arg_max(suite, "_seq") as suite
    from {table} where state = 'open' group by reason order by rows desc, reason"""
_ROWS = """
    select topic, "partition", "offset", "timestamp", reason, code, suite, state, key, value
    from {table} where {chosen} order by "timestamp" desc, topic, "partition", "offset" desc limit {limit}"""
_PATCHES = """
    select topic, "partition", "offset", value, patched_by as "by", patched_at as "at", reason, command from {table}"""
_Wait = Annotated[bool, typer.Option(help="Follow it until it has ended.")]
_Cause = Annotated[str | None, typer.Option(help="Only rows that were refused for this, as listed.")]
_Timeout = Annotated[float | None, typer.Option(min=1, help="Seconds that it may run; then it is given up.")]
_Json = Annotated[bool, typer.Option("--json", help="For programs.")]


def register(main: typer.Typer) -> None:
    """Add this module's commands."""
    from deltaworks.cli.patching import patch, withdraw

    group = typer.Typer(no_args_is_help=True, help="Rows that were refused, and why.", rich_markup_mode=None)
    for name, command in (
        ("list", listed),
        ("show", shown),
        ("accept", accept),
        ("patch", patch),
        ("withdraw", withdraw),
        ("replay", replay),
        ("discard", discard),
    ):
        group.command(name)(command)
    main.add_typer(group, name="quarantine")


def listed(
    table: Annotated[str | None, typer.Argument(help="Only this table's, such as silver.orders.")] = None,
    *,
    as_json: _Json = False,
) -> None:
    """List what is set aside, by table and cause: how many rows, since when, the last one's place in Kafka.

    Of tables that a transform computes: what it cannot compute, by error, with the place of one of them.
    """
    from deltaworks import analyst, catalog

    now = settings()
    found = catalog.load(now.project)
    rows: list[dict[str, object]] = []
    with analyst.connect(now.lake) as lake:
        for name in _known(found, table):
            if name in _computed(found):
                rows += _left_out(name)
                continue
            side = beside(lake, name, "quarantine")
            causes = lake.sql(_CAUSES.format(table=side)).dicts() if side else []
            rows += [{"table": name, **cause} for cause in causes]
    if as_json or not rows:
        show.listing(rows, title="quarantine", as_json=as_json, empty="no row is set aside")
        return
    for row in rows:
        _print_cause(row)


def shown(
    table: Annotated[str, typer.Argument(help="Name of the table, such as silver.orders.")],
    *,
    cause: _Cause = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 20,
    as_json: _Json = False,
) -> None:
    """Show refused rows of a table as they came, newest first. The bytes may hold personal data.

    Of a table that a transform computes: the rows of its inputs, or a view's keys, that it cannot compute.
    """
    from deltaworks import analyst, catalog
    from deltaworks.query.text import literal

    now = settings()
    project = catalog.load(now.project)
    (name,) = _known(project, table)
    if name in _computed(project):
        show.listing(_unfit(name, cause=cause)[:limit], title=f"{name}: left out", as_json=as_json, empty="none")
        return
    chosen = "true" if cause is None else f"reason = {literal(cause)}"
    with analyst.connect(now.lake) as lake:
        side = beside(lake, name, "quarantine")
        found = lake.sql(_ROWS.format(table=side, chosen=chosen, limit=limit)).dicts() if side else []
        patches = _patches(lake, name)
    rows = [
        {**row, "key": text(row["key"]), "value": text(row["value"]), "patch": patches.get(_place(row))}
        for row in found
    ]
    if as_json:
        show.listing(rows, title=f"{name}: refused rows", as_json=True)
        return
    if not rows:
        show.listing([], title=f"{name}: refused rows", as_json=False, empty="none")
    for row in rows:
        _print(row)


def accept(
    table: Annotated[str, typer.Argument(help="Name of the table, such as silver.orders.")],
    *,
    wait: _Wait = True,
    by: By = None,
    reason: Reason = ASKED,
) -> None:
    """Let a table set aside what bronze has now, beyond its bad_rows_max; what comes later is judged again."""
    _order(table, "accept_bad_rows", {}, by=by, reason=reason, wait=wait)


def replay(
    table: Annotated[str, typer.Argument(help="Name of the table, such as silver.orders.")],
    *,
    cause: _Cause = None,
    wait: _Wait = True,
    timeout: _Timeout = None,
    by: By = None,
    reason: Reason = ASKED,
) -> None:
    """Judge refused rows again, once their rule or declaration is mended and the app runs with it.

    Those that pass go to the table as if they had passed then, and leave quarantine; the others stay. What a transform
    could not compute is computed by the transform as it is now.
    """
    _order(table, "replay_refused_rows", {"cause": cause}, by=by, reason=reason, wait=wait, timeout=timeout)


def discard(
    table: Annotated[str, typer.Argument(help="Name of the table, such as silver.orders.")],
    *,
    reason: Annotated[str, typer.Option(help="Why these rows are of no use, for the record.")],
    cause: _Cause = None,
    row: Annotated[str | None, typer.Option("--row", help="Only this row, as TOPIC/PARTITION/OFFSET.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Whatever they were refused for.")] = False,
    wait: _Wait = True,
    by: By = None,
) -> None:
    """Decide that refused rows stay out of the table for good; they are kept, and counted as refused."""
    if [cause is not None, row is not None, every].count(True) != 1:
        raise typer.BadParameter("Give one of --cause, --row and --all.", param_hint="--cause")
    kind = "discard_refused_rows" if row is None else "discard_refused_row"
    arguments = {"cause": cause} if row is None else place_of(row)
    _order(table, kind, arguments, by=by, reason=reason, wait=wait)


def _order(
    table: str, kind: str, arguments: Mapping[str, object], *, by: str | None, reason: str, wait: bool,
    timeout: float | None = None,
) -> None:  # fmt: skip
    from deltaworks import catalog
    from deltaworks.cli.commands import order

    found = catalog.load(settings().project)
    (name,) = _known(found, table)
    if name in _computed(found) and kind != "replay_refused_rows":
        told = f"{name} parses nothing; what its transform cannot compute stays out until it can."
        raise typer.BadParameter(told, param_hint="TABLE")
    order(name, kind=kind, arguments=arguments, by=by, reason=reason, wait=wait, timeout=timeout)


def place_of(row: str) -> dict[str, object]:
    """A row's place as an order names it."""
    topic, partition, offset = record(row, option="--row")
    return {"topic": topic, "partition": partition, "offset": offset}


def text(value: object) -> str | None:
    """Bytes as text where they are text, else as Python writes bytes."""
    if not isinstance(value, bytes | bytearray):
        return None
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return repr(bytes(value))


def parsing(found: "Catalog", table: str | None) -> Sequence[str]:
    """The tables that parse; if one is named, that one, or a usage error."""
    names = [name for name, one in found.tables.items() if one.parses]
    if table is None:
        return names
    named = found[table.removesuffix("__quarantine")].name  # raises, with the nearest name
    if named not in names:
        raise typer.BadParameter(f"{named} parses nothing, so it sets nothing aside.", param_hint="TABLE")
    return [named]


def _computed(found: "Catalog") -> list[str]:
    """The tables that a transform computes from others: it may fail on a row."""
    return [name for name, one in found.tables.items() if one.is_computed]


def _known(found: "Catalog", table: str | None) -> Sequence[str]:
    """The tables that leave rows out; if one is named, that one, or a usage error."""
    named = None if table is None else found[table.removesuffix("__quarantine")].name
    if named is not None and named in _computed(found):
        return [named]
    return [*parsing(found, table), *(_computed(found) if table is None else ())]


def _unfit(name: str, *, cause: str | None = None) -> list[dict[str, object]]:
    """What a table leaves out, each with its error."""
    from deltaworks.engine.through import Lineage

    lineage = Lineage(settings().lake)
    if not (lineage.path(name) / "_delta_log").exists():
        return []
    entry = next(lineage.entries(name), None)
    unfit = () if entry is None else entry.position.unfit
    return [
        {"of": one.of, "place": one.place, "reason": one.error, "origin": one.origin}
        for one in unfit
        if cause in (None, one.error)
    ]


def _left_out(name: str) -> list[dict[str, object]]:
    """What a table leaves out, by error: as many columns of a cause as are known of it."""
    by_error: dict[object, list[dict[str, object]]] = {}
    for one in _unfit(name):
        by_error.setdefault(one["reason"], []).append(one)
    return [
        {
            "table": name,
            "reason": error,
            "rows": len(some),
            "of": some[-1]["of"],
            "sample": some[-1]["place"],
            "origin": some[-1]["origin"],
        }
        for error, some in by_error.items()
    ]


def beside(lake: "Analyst", name: str, suffix: str) -> str | None:
    """The table beside a table, as SQL names it; None while there is none."""
    side = f"{name}__{suffix}"
    return '"' + side.replace(".", '"."') + '"' if side in lake.tables() else None


def _patches(lake: "Analyst", name: str) -> Mapping[str, Mapping[str, object]]:
    """By the row's place what somebody says that it should have said."""
    side = beside(lake, name, "patches")
    found = lake.sql(_PATCHES.format(table=side)).dicts() if side else []
    told = ("value", "by", "at", "reason", "command")
    return {_place(one): {**{name: one[name] for name in told}, "value": text(one["value"])} for one in found}


def _place(sample: object) -> str:
    assert isinstance(sample, Mapping)
    return f"{sample['topic']}/{sample['partition']}/{sample['offset']}"


def _print_cause(row: Mapping[str, object]) -> None:
    """A cause on two lines: reasons are long."""
    show.out.print(f"{row['table']}  {row['rows']:,}  {row['reason']}", style="bold", markup=False, soft_wrap=True)
    if "of" in row:
        where = f", in {row['origin']}" if row["origin"] else ""
        told = f"  cannot be computed, such as {row['sample']} of {row['of']}{where}"
        show.out.print(told, markup=False, soft_wrap=True)
        return
    times = f"{row['first_seen']:%Y-%m-%d %H:%M:%S} to {row['last_seen']:%Y-%m-%d %H:%M:%S}"
    show.out.print(f"  {times}, last {_place(row['sample'])}", markup=False, soft_wrap=True)


def _print(row: Mapping[str, object]) -> None:
    """A row on its own lines: what came may be long."""
    show.out.print(
        f"{_place(row)}  {row['timestamp']:%Y-%m-%d %H:%M:%S}  {row['reason']}",
        style="bold",
        markup=False,
        soft_wrap=True,
    )
    for name in ("key", "value"):
        show.out.print(f"  {name:6} {_quoted(row[name])}", markup=False, soft_wrap=True)
    if isinstance(patch := row["patch"], Mapping):
        told = f"by {patch['by']}, {patch['at']:%Y-%m-%d %H:%M:%S}, command {patch['command']}: {patch['reason']}"
        show.out.print(f"  {'patch':6} {_quoted(patch['value'])}", markup=False, soft_wrap=True)
        show.out.print(f"  {'':6} {told}", markup=False, soft_wrap=True)
    show.out.print(f"  judged by code {row['code']}, suite {row['suite']}; {row['state']}", style="dim", markup=False)


def _quoted(value: object) -> str:
    """What came may hold line ends, or codes that steer a terminal."""
    return "-" if value is None else json.dumps(value, ensure_ascii=False)
