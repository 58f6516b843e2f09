"""How a table is kept: what a new row does to the rows that are there."""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Literal

from deltaworks.words._word import word

Combine = Literal["add", "least", "greatest"]

add: Combine = "add"
least: Combine = "least"
greatest: Combine = "greatest"


@word
class Raw:
    """Bronze: Kafka's bytes and coordinates, never parsed, never refused."""


@word
class Append:
    """Events. Of the copies of an event inside the horizon the first one ingested counts."""

    dedupe_by: tuple[str, ...]
    within: timedelta


@word
class Latest:
    """One row per key, as the source last reported it; deletes are applied. `by`: of states the highest one counts."""

    keys: tuple[str, ...]
    by: str | None = None


@word
class History:
    """Every state of each key, with the time in which it held; deletes and truncations end it.

    `by`: of states the time from which each holds.
    """

    keys: tuple[str, ...]
    by: str | None = None


@word
class Aggregate:
    """Groups over an append table: the transform runs on new rows only, its result is combined into the table."""

    keys: tuple[str, ...]
    combine: Mapping[str, Combine]


@word
class View:
    """Any relational view of changing tables: touched keys are recomputed from all inputs and replaced."""

    keys: tuple[str, ...]


@word
class Stateful:
    """What neighbouring events make together (sessions, joins within a time): each stretch of a part is recomputed."""

    keys: tuple[str, ...]
    part: tuple[str, ...]
    gap: timedelta | None
    reach: timedelta | None
    closes: str | None


KeptAs = Raw | Append | Latest | History | Aggregate | View | Stateful


def raw() -> Raw:
    """Keep Kafka's bytes as they came."""
    return Raw()


def append(*, dedupe_by: tuple[str, ...] = (), within: timedelta = timedelta(0)) -> Append:
    """Keep every event once; copies by `dedupe_by` are recognised up to `within` apart, by the broker's time."""
    return Append(dedupe_by=dedupe_by, within=within)


def latest(*, keys: tuple[str, ...], by: str | None = None) -> Latest:
    """Keep the newest state of each key.

    Which one is newer a database's log says, and of states by JSON their arrival, or with `by` a column: the highest
    value counts, and of equal ones the last to arrive.
    """
    return Latest(keys=keys, by=by)


def history(*, keys: tuple[str, ...], by: str | None = None) -> History:
    """Keep all states of each key, one row each; `valid_from`, `valid_to` and `is_current` come by themselves.

    From when on a state held a database's log says, and of states by JSON the column `by`: of equal times the last to
    arrive counts.
    """
    return History(keys=keys, by=by)


def aggregate(*, keys: tuple[str, ...], combine: Mapping[str, Combine]) -> Aggregate:
    """Keep one row per key; the columns of `combine` say how a batch's value joins the stored one (null-ignoring)."""
    return Aggregate(keys=keys, combine=MappingProxyType(dict(combine)))


def view(*, keys: tuple[str, ...]) -> View:
    """Keep one row per key, recomputed by the transform; `keys_from` in transform.py maps changed rows to keys."""
    return View(keys=keys)


def stateful(
    *,
    keys: tuple[str, ...],
    part: tuple[str, ...],
    gap: timedelta | None = None,
    reach: timedelta | None = None,
    closes: str | None = None,
) -> Stateful:
    """Keep one row per key, made of events that belong together: of one `part`, and near in event time.

    `part` names columns that the inputs and the table have; rows of different parts never meet. How near is said by one
    of two lengths. `gap`: rows further apart, with none between, do not meet (sessions). `reach`: a row of the table
    depends on rows at most this far before or after its event time (joins, the last minutes before each event).

    `closes` names the timestamp column from which on no row that comes in time can change a row; the engine then keeps
    the boolean column `complete`, which the table declares and the transform does not give.
    """
    return Stateful(keys=keys, part=part, gap=gap, reach=reach, closes=closes)
