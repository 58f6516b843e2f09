"""What a person may have done to an app and its tables: which operation is for which tables, and what it orders.

Named as on the command line. Reads declarations only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from deltaworks.catalog import Catalog, Declared
from deltaworks.control.commands import RECOMPUTE
from deltaworks.errors import CommandError, DeclarationError
from deltaworks.findings import nearest
from deltaworks.times import utc, version_or_time
from deltaworks.words.keeping import Raw

ALL = "all tables"
"""Instead of a table's name."""
NONE = "no table"
"""The same, where the app itself is meant."""
FIELDS = ("table", "to", "cause", "hours", "command", "plan_only")
"""What a form may give beside the operation and the reason; None, False, NONE or an empty text is not given."""
ANY = "any"
"""Instead of a cause: nothing is decided for good because a field was left empty."""
CANCEL = "commands cancel"
OF_APP: Mapping[str, str] = {
    "start": "has the app run, and waits until it does well",
    "stop": "has the driver end its batch and leave",
    "restart": "does the one after the other: new code and declarations are used from then on",
    "drain": "takes everything that is there, then stops",
}
"""What can be done to an app itself, and what that does."""
Given = Mapping[str, Any]
Arguments = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What is ordered for a table; `kind` is the order's.

    `fits` says which tables it is for, `takes` which fields beside the table. `one_by_one`: not for ALL, as it does the
    tables above, too, and those above two of them would go back twice.
    """

    does: str
    kind: str
    fits: Callable[[Declared], bool]
    takes: Sequence[str] = ()
    arguments: Callable[[Given], Arguments] = lambda _: {}
    one_by_one: bool = False


@dataclass(frozen=True, kw_only=True)
class Order:
    """One order to the owner of a table."""

    table: str
    kind: str
    arguments: Arguments


def of_app(catalog: Catalog, app: str) -> dict[str, Operation]:
    """The operations that fit a table of the app, by name."""
    tables = catalog.app(app)
    return {name: one for name, one in OPERATIONS.items() if any(map(one.fits, tables))}


def check_fields(operation: str, given: Given) -> None:
    """Raise CommandError for an operation that there is not, and for a field that it would leave aside in silence."""
    known = {CANCEL: ("command",), **dict.fromkeys(OF_APP, ()), **{name: one.takes for name, one in OPERATIONS.items()}}
    if operation not in known:
        raise CommandError(operation, "there is no such operation", nearest(operation, known, "operations"))
    takes = (*known[operation], *(["table"] if operation in OPERATIONS else []))
    if vain := [name for name in FIELDS if _is_given(given.get(name)) and name not in takes]:
        raise CommandError(operation, f"it takes no {' and no '.join(vain)}", "Leave that empty")
    needed = {"table", "command", "to", *(["cause"] if operation == "quarantine discard" else [])}
    if lacking := [name for name in takes if name in needed and not _is_given(given.get(name))]:
        raise CommandError(operation, f"nothing says which {lacking[0]}", f"Fill in: {lacking[0]}")


def orders(catalog: Catalog, app: str, *, operation: str, given: Given) -> Sequence[Order]:
    """What to order for the table, or for ALL that the operation fits, inputs first.

    Raises CommandError and DeclarationError for what cannot be done.
    """
    check_fields(operation, given)
    wanted, table = OPERATIONS[operation], str(given["table"])
    tables = {declared.name: declared for declared in catalog.app(app)}
    fit = [name for name, one in tables.items() if wanted.fits(one)]
    if table != ALL and table not in tables:
        raise DeclarationError(table, f"app {app} has no such table", nearest(table, tables, "tables"))
    if table not in (ALL, *fit):
        raise CommandError(f"{operation} {table}", "it is not for this table", f"It is for {', '.join(fit) or 'none'}")
    if table == ALL and wanted.one_by_one:
        raise CommandError(operation, "it is for one table, and does those above it, too", "Name the lowest")
    try:
        arguments = wanted.arguments(given)
    except ValueError:
        finding = f"{given.get('to')!r} is no time such as 2026-11-22T10:00 (UTC)"
        raise CommandError(operation, finding, "Write it so") from None
    chosen = fit if table == ALL else [table]
    if operation == "rebuild":  # with each goes what is above it
        chosen = [name for name in chosen if not _below(catalog, name).intersection(chosen)]
    return [Order(table=name, kind=wanted.kind, arguments=arguments) for name in chosen]


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value not in ("", NONE)


def _below(catalog: Catalog, name: str) -> set[str]:
    """The tables that a table is made from, by whatever way."""
    inputs = set(catalog[name].inputs)
    return inputs.union(*(_below(catalog, one) for one in inputs))


def _is_made(declared: Declared) -> bool:
    return not isinstance(declared.table.kept_as, Raw)


def _leaves_out(declared: Declared) -> bool:
    return declared.parses or declared.is_computed


def _plan_only(given: Given) -> Arguments:
    return {"plan_only": bool(given.get("plan_only"))}


def _back(given: Given) -> Arguments:
    to = version_or_time(str(given["to"]))
    return {"what": "rewind", "to": to.isoformat() if isinstance(to, datetime) else to, **_plan_only(given)}


def _since(given: Given) -> Arguments:
    return {"what": "replay", "since": utc(str(given["to"])).isoformat(), **_plan_only(given)}


def _mark(given: Given) -> Arguments:
    return {"to_micros": (utc(str(given["to"])) - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)}


OPERATIONS: Mapping[str, Operation] = {
    "compact": Operation(
        does="turns many small files into few", kind="compact", fits=lambda _: True,
        arguments=lambda _: {"by_debt": False},
    ),
    "vacuum": Operation(
        does="deletes files that only versions of before *Hours* have (empty: a week)", kind="vacuum",
        fits=lambda _: True, takes=("hours",), arguments=lambda given: {"hours": given.get("hours")},
    ),
    "expire": Operation(
        does="deletes rows that are older than the table's keep_days", kind="expire",
        fits=lambda declared: declared.table.keep_days is not None,
    ),
    "rebuild": Operation(
        does="computes it and every table above it again from all of their inputs", kind=RECOMPUTE, fits=_is_made,
        takes=("plan_only",), arguments=lambda given: {"what": "rebuild", **_plan_only(given)},
    ),
    "rewind": Operation(
        does="brings it and every table above it back to a version or a time (*To*), from where they go on",
        kind=RECOMPUTE, fits=_is_made, takes=("to", "plan_only"), arguments=_back, one_by_one=True,
    ),
    "replay": Operation(
        does="has it and every table above it take again what arrived since a time (*To*)", kind=RECOMPUTE,
        fits=lambda declared: declared.parses, takes=("to", "plan_only"), arguments=_since, one_by_one=True,
    ),
    "quarantine replay": Operation(
        does="judges refused rows again (*Cause*: only those)", kind="replay_refused_rows", fits=_leaves_out,
        takes=("cause",), arguments=lambda given: {"cause": given.get("cause") or None},
    ),
    "quarantine accept": Operation(
        does="lets it set aside what bronze has now, beyond its bad_rows_max", kind="accept_bad_rows",
        fits=lambda declared: declared.parses,
    ),
    "quarantine discard": Operation(
        does=f"decides that refused rows stay out for good (*Cause*: those; {ANY}: all)", kind="discard_refused_rows",
        fits=lambda declared: declared.parses, takes=("cause",),
        arguments=lambda given: {"cause": None if given["cause"] == ANY else given["cause"]},
    ),
    "late apply": Operation(
        does="uses the rows that came too late and are set aside", kind="apply_late_rows",
        fits=lambda declared: declared.sets_late_rows_aside,
    ),
    "late revise": Operation(
        does="says how far time had come (*To*), where a wrong clock made all others late", kind="revise_mark",
        fits=lambda declared: declared.has_events, takes=("to",), arguments=_mark,
    ),
}  # fmt: skip
