"""The ledger entry: what a commit consumed and did, stored in the commit itself."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self, get_args

from deltaworks.errors import NewerEntryError

Kind = Literal[
    "create", "fence", "batch", "replay", "late", "claim", "release", "compact", "redo", "gaps", "accept", "discard",
    "widen", "vacuum", "publish", "patch", "expire", "revise",
]  # fmt: skip
ROW_KINDS: frozenset[str] = frozenset({"batch", "replay"})
FORMAT = 1
"""Goes up when a reader that knows every name of an entry must not go on from it all the same."""
Offsets = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """An ingest batch that brings no row to bronze: refused rows of a table are judged again in its turn.

    `table`: whose. `after`, `upto`: they were first read in ingest batches (after, upto]. `cause`: only those that were
    refused for it. `command`: who ordered it. `seq`: the ingest batch itself.
    """

    table: str
    after: int
    upto: int
    command: int
    seq: int
    cause: str | None = None


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """What a transform cannot compute, and its table leaves out.

    `of`: the input. `place`: the row's `_source` there. `error`: the error's name, never its text, which may quote
    values. `origin`: where in the transform it was raised, as far as that is known. Of a view `of` is the view itself
    and `place` one of its keys.
    """

    of: str
    place: str
    error: str
    origin: str | None = None

    @property
    def told(self) -> str:
        """The error, and where it was raised."""
        return self.error if self.origin is None else f"{self.error} in {self.origin}"


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far a table has taken from its inputs; repeated whole in every commit.

    `offsets`: bronze only, topic -> partition -> next offset to read. `first`: where reading began. `rows`: rows
    kept so far. `lost`: offsets that were gone from the broker before they were read. `asked`: up to here the broker
    was asked what the offsets without a row are; `explained`: its answers, offsets per kind (`gaps.py`).
    `batches`: tables over bronze, input -> last ingest batch taken in full.
    `versions`: tables over tables, input -> last version taken in full.
    `inputs`: which tables those are, input -> its id: another one of its name is another table.
    `epochs`: who committed what was taken last, input -> epoch of that owner; below 0: it, or one before it.
    `mark`: how far the events have come that were accepted (`marks.py`), in microseconds since 1970; it falls where
    somebody revises it. `closed`: how far it had come before that: what tables above have closed by it stays closed.
    `truncated`: sequence of the last truncation; changes before it mean nothing, whenever they arrive.
    `newest`: newest sequence taken, once a change came that does not carry all columns: only an older one, arriving
    after it, has to be looked at beside what is there.
    `strays`: undeclared fields that records had so far, where their names may be told; else `strays_most`: how many
    different ones a batch had at most.
    `replays`: bronze only, those that their table may not have taken yet.
    `applied`: (how often, how many) rows that came too late were used after all.
    `unfit`: tables over tables, what is left out because the transform cannot compute it.
    `kept_from`: rows whose event time is before it have expired, in microseconds since 1970; it never falls.
    """

    offsets: Offsets = field(default_factory=dict)
    first: Offsets = field(default_factory=dict)
    rows: Offsets = field(default_factory=dict)
    lost: Offsets = field(default_factory=dict)
    asked: Offsets = field(default_factory=dict)
    explained: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    epochs: Mapping[str, int] = field(default_factory=dict)
    truncated: str | None = None
    newest: str | None = None
    strays: tuple[str, ...] = ()
    strays_most: int | None = None
    replays: tuple[Replay, ...] = ()
    applied: tuple[int, int] | None = None
    unfit: tuple[Unfit, ...] = ()
    mark: int | None = None
    closed: int | None = None
    kept_from: int | None = None


_NO_PLACE = frozenset({"read", "warned", "ahead"})


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Where the rows of a batch went.

    read = taken + superseded + refused + duplicate + late + not_mine + filtered + expired.

    `filtered`: rows that the table's `only=` leaves out, of those that were not refused. `expired`: rows of events that
    were taken, and have gone since, and those that came when their day had gone; of what is computed from them, those
    that had gone before they could be taken. `warned` is no such place: rows that break a warning and go where they go
    all the same; nor is `ahead`: rows that were given a time by a clock that was ahead, of bronze by their producer's.
    """

    read: int = 0
    taken: int = 0
    superseded: int = 0
    refused: int = 0
    duplicate: int = 0
    late: int = 0
    not_mine: int = 0
    filtered: int = 0
    expired: int = 0
    warned: int = 0
    ahead: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Add up column by column."""
        return Counts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)})

    def __sub__(self, other: "Counts") -> "Counts":
        """What has to be added to the other to come to this."""
        return Counts(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(Counts)})

    @property
    def balanced(self) -> bool:
        """Whether every row that was read is accounted for."""
        gone = sum(int(getattr(self, f.name)) for f in fields(Counts) if f.name not in _NO_PLACE)
        return self.read == gone


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What one commit of an owned table says about itself."""

    kind: Kind
    app: str
    epoch: int
    ingest_seq: int = 0
    position: Position = field(default_factory=Position)
    counts: Counts = field(default_factory=Counts)
    totals: Counts = field(default_factory=Counts)
    marks: tuple[tuple[int, int], ...] = ()
    """(ingest batch, mark) wherever this commit raised the mark, or has revised it: a replay looks them up."""
    gaps: tuple[tuple[str, str, str, int, int], ...] = ()
    """(topic, partition, kind, first, next offset) of gaps that this commit explains, but for markers."""
    event_low: str | None = None
    event_high: str | None = None
    code: str | None = None
    suite: str | None = None
    """Hashes of the table's code and of its suite: what judged the rows."""
    warnings: Mapping[str, int] = field(default_factory=dict)
    """Per warning of the suite the rows of this commit that break it."""
    accepted: int = 0
    """Ingest batches up to this one may have bad rows beyond `bad_rows_max`: somebody accepted them."""
    claimed: tuple[int, int] | None = None
    """Of a quarantine: (ingest batch, rows) that are on their way to the table; in each entry until it has them."""
    replaced: tuple[int, str] | None = None
    """Version in which rows and place last gave way to others, made elsewhere or long ago, and what those were staged
    as: what was added before says nothing about what is there."""
    back_to: int | None = None
    """Of a rewind: the version whose rows and place it brought back; what was committed since is undone."""
    beside: int | None = None
    """Of a table beside another: the version that the other had at this commit, so what of it came before which."""
    sides: Mapping[str, int] = field(default_factory=dict)
    """Of a table with others beside it: their versions at this commit, by suffix; they were committed first."""
    command: int | None = None
    format: int = FORMAT

    def to_json(self) -> str:
        """As stored in `commitInfo.userMetadata`."""
        return json.dumps(_without_empty(asdict(self)), separators=(",", ":"), sort_keys=True)

    @property
    def passed(self) -> int | None:
        """What happened before it is over, for tables that close something by it: it never falls."""
        known = [one for one in (self.position.mark, self.position.closed) if one is not None]
        return max(known, default=None)

    @property
    def replaced_at(self) -> int:
        """Version in which rows and place last gave way to others; 0 if never."""
        return 0 if self.replaced is None else self.replaced[0]

    @classmethod
    def from_json(cls, text: str | None, *, place: str) -> Self | None:
        """Read an entry back; None when the text is not one of ours (a foreign commit).

        Raises NewerEntryError, which names the `place`, where a newer version wrote what this one does not know: every
        entry says all again that the one before said, and the next would leave it out.
        """
        try:
            raw: Any = json.loads(text or "null")
            if not isinstance(raw, dict) or not isinstance(raw.get("kind"), str) or "epoch" not in raw:
                return None
            newer = next(_unknown(raw), None)
            if newer is not None:
                raise NewerEntryError(place, f"was written by a newer Deltaworks ({newer})", _BACK)
            values = dict(raw)
            position = raw.get("position", {})
            replays = tuple(Replay(**one) for one in position.get("replays", ()))
            strays = tuple(position.get("strays", ()))
            applied = tuple(position["applied"]) if "applied" in position else None
            unfit = tuple(Unfit(**one) for one in position.get("unfit", ()))
            position = {**position, "strays": strays, "replays": replays, "applied": applied, "unfit": unfit}
            values["position"] = Position(**position)
            values["marks"] = tuple((seq, mark) for seq, mark in raw.get("marks", ()))
            for name in ("claimed", "replaced"):
                values[name] = tuple(raw[name]) if name in raw else None
            values["gaps"] = tuple(tuple(gap) for gap in raw.get("gaps", ()))
            values["counts"], values["totals"] = Counts(**raw.get("counts", {})), Counts(**raw.get("totals", {}))
            return cls(**values)
        except (ValueError, TypeError, AttributeError):
            return None

    def follow(self, kind: Kind, **changes: Any) -> "Entry":
        """The next entry: same position and totals, no counts of its own unless given."""
        counts: Counts = changes.pop("counts", Counts())
        own = {"counts": counts, "command": None, "marks": (), "gaps": (), "warnings": {}, "back_to": None, **changes}
        return replace(self, kind=kind, totals=self.totals + counts, **own)


def _unknown(raw: Mapping[str, Any]) -> Iterator[str]:
    """What an entry says that this version has no word for."""
    if raw.get("format", FORMAT) > FORMAT:
        yield f"an entry of format {raw['format']}, where this one knows {FORMAT}"
    if raw["kind"] not in get_args(Kind):
        yield f'an entry of kind "{raw["kind"]}"'
    position = raw.get("position", {})
    parts = [
        ("", Entry, [raw]),
        ("position.", Position, [position]),
        ("position.replays.", Replay, position.get("replays", ())),
        ("position.unfit.", Unfit, position.get("unfit", ())),
        ("counts.", Counts, [raw.get("counts", {}), raw.get("totals", {})]),
    ]
    for where, kind, values in parts:
        known = {one.name for one in fields(kind)}
        yield from (f'its entry says "{where}{name}"' for value in values for name in value if name not in known)


def ahead(side: Entry, main: Entry, *, of_tables: bool) -> bool:
    """Whether a table beside another has rows that the other has not taken yet.

    `of_tables`: they came from tables, and are numbered by versions; else from bronze, by ingest batches.
    """
    if of_tables:
        far, taken = (max(one.position.versions.values(), default=0) for one in (side, main))
        return far > taken
    return side.ingest_seq > main.ingest_seq


def _without_empty(value: Any) -> Any:
    """Entries travel in every commit: what is empty or zero is left out."""
    if isinstance(value, dict):
        kept = {k: _without_empty(v) for k, v in value.items() if v is not None}
        return {k: v for k, v in kept.items() if v not in ({}, (), []) and not (k in _ZERO_LEFT_OUT and v == 0)}
    return value


_BACK = "Run that version again, or bring back a copy of the lake from before it ran"
_ZERO_LEFT_OUT = {f.name for f in fields(Counts)}
