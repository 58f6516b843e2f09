"""What an app is given while it dies: a table-driven list, so that a new kind of table joins by a line."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

from deltaworks.control.commands import Command
from deltaworks.settings import Settings
from shop.part import FIRST, part_of_shop
from tests.broken_rules import command
from tests.flows import START, Record
from tests.shop_rows import broken, change, random_changes, random_views, view
from tests.tiny_project import Project

Batches = list[list[Record]]


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A sum that no version of a table may change, once the table has rows."""

    table: str
    sum: str


@dataclass(frozen=True, kw_only=True)
class Workload:
    """An app of a project and the rows that it gets.

    `batches` gives four: one into an empty lake, two for a driver at work, and one that leaves some table nothing to
    do and another only changes that are too old, so that positions are remembered and entries are committed alone.
    """

    app: str
    settings: Callable[[Path], Settings]
    batches: Callable[[Random], Batches]
    constants: tuple[Constant, ...] = ()
    orders: tuple[Command, ...] = ()
    """What the owner is ordered to do in the end."""
    mended: Callable[[Settings], Settings] = lambda settings: settings
    """The same project with its rules mended, for those orders and what comes after."""


def _shop(folder: Path) -> Settings:
    """Some of the shop: a death at every step of all its tables would take a night."""
    made = folder / "project"
    if not made.exists():
        part_of_shop(made, *FIRST, "gold.orders_with_customers")
    return Settings.load(made, environment={}, data=folder)


def _tiny(folder: Path) -> Settings:
    """The tiny project, with late notes set aside, and some filtered: of those that the rule refuses at first too."""
    made = folder / "project"
    if not made.exists():
        declared = "tables/gold/notes_per_day/table.py"
        copy = Project(made)
        copy.edit(declared, "late=correct(after=hours(1))", "late=side_output(after=hours(1))")
        copy.edit(declared, "aggregate, correct, greatest", "aggregate, greatest")
        copy.edit(declared, "hours, least", "hours, least, side_output")
        copy.edit("tables/silver/notes/table.py", "subject=", f'only="words not in {_FILTERED}",\n    subject=')
        copy.edit("expectations/silver/notes.yml", *_WRONG_RULE)
    return Settings.load(made, environment={}, data=folder)


def _mended(settings: Settings) -> Settings:
    made = settings.project.with_name("mended")
    if not made.exists():
        Project(made, of=settings.project).edit("expectations/silver/notes.yml", *reversed(_WRONG_RULE))
    return settings.changed(project=made)


def _views(chance: Random) -> Batches:
    records = random_views(chance, 60)
    well = [view(1000 + number, page="/again") for number in range(3)]
    parts = [[*records[at : at + 20], *well, broken(b"{")] for at in (0, 20, 40)]
    return [*parts, well]  # the last one: nothing but copies


def _changes(chance: Random) -> Batches:
    gone = {**_ORDER, "order_id": 20}  # of the others none may be deleted
    records = [change("c", gone, lsn=1_000), change("d", gone, lsn=1_001), *random_changes(chance, 90)]
    seen = {key["order_id"] for record in records if "order_id" in (key := json.loads(record.key or b"{}"))}
    old = [change("c", {**_ORDER, "order_id": number}, lsn=0) for number in sorted(seen)]
    bad = Record(topic="shop.changes", value=b"{", key=b"{}")
    each = -(-len(records) // 3)
    return [*([*records[at : at + each], bad] for at in range(0, len(records), each)), old]


_AT = START.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
_ORDER = {"customer_id": 1, "status": "placed", "amount": "1.00", "placed_at": _AT, "updated_at": _AT}
_MEMBERS = 12
_WRONG_RULE = ("min_value: 0}", "min_value: 0, max_value: 5}")
_BEFORE_ALL = round((START - timedelta(hours=1)).timestamp()) * 10**6
_FILTERED = (3, 7)
"""Notes of so many words; the wrong rule refuses the longer ones first."""


def _letters(chance: Random) -> Batches:
    """Notes, some late, some no notes; members who move and hand dues to each other, in whole euros."""
    dues = dict.fromkeys(range(_MEMBERS), 20)
    cities = {number: chance.choice("ABC") for number in dues}
    batches = []
    for part in range(3):
        records = [_note(f"n{part}-{number}", chance, part) for number in range(15)]
        records += [_note(f"f{part}-{words}", chance, part, words=words) for words in _FILTERED]
        records += [_note(f"l{part}-{late}", chance, part, words=1, late=late) for late in (False, True)]
        records += [records[0], Record(topic="notes", value=b"[]")]
        for _ in range(4):
            one, other = chance.sample(range(_MEMBERS), 2)
            moved = chance.randrange(5)
            dues[one], dues[other] = dues[one] - moved, dues[other] + moved
            cities[one] = chance.choice("ABC")
        records += [_member(number, cities[number], dues[number]) for number in dues]
        records.append(Record(topic="members", value=b'{"member_id": "x"}'))
        batches.append(records)
    filtered = _note("f3", chance, 3, words=min(_FILTERED))
    return [*batches, [filtered, *(_member(number, cities[number], dues[number]) for number in dues)]]


def _note(name: str, chance: Random, part: int, *, words: int | None = None, late: bool | None = None) -> Record:
    late = chance.random() < 0.3 if late is None else late
    back = timedelta(hours=3) if late else timedelta(seconds=chance.randrange(60))
    at = START + timedelta(minutes=part) - back
    words = chance.randrange(9) if words is None else words
    value = {"note_id": name, "written_at": round(at.timestamp() * 1000), "member_id": 1, "words": words}
    return Record(topic="notes", value=json.dumps(value).encode(), at=max(at, START))


def _member(number: int, city: str, dues: int) -> Record:
    value = {"member_id": number, "name": f"m{number}", "city": city, "dues": f"{dues}.00", "joined": None}
    return Record(topic="members", value=json.dumps(value).encode(), partition=number % 2)


WORKLOADS = (
    Workload(app="web", settings=_shop, batches=_views),
    Workload(app="shop", settings=_shop, batches=_changes),
    Workload(
        app="tiny",
        settings=_tiny,
        batches=_letters,
        constants=(Constant(table="gold.members_per_city", sum="sum(dues)"),),
        orders=(
            command("replay_refused_rows", "silver.notes", number=1),
            command("discard_refused_rows", "silver.notes", number=2),
            command("apply_late_rows", "gold.notes_per_day", number=3),
            command("vacuum", "silver.notes", number=4, hours=0),
            command("publish", "silver.members", number=5, folder="back", to=1),
            command("revise_mark", "silver.notes", number=6, to_micros=_BEFORE_ALL),
        ),
        mended=_mended,
    ),
)
