"""`table new` begins a table that is right, or writes nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deltaworks.catalog import check, load
from deltaworks.catalog.new_table import Wish, new_table
from deltaworks.errors import DeclarationError
from deltaworks.words.keeping import Aggregate, Append, History, Latest, Raw, View
from tests.tiny_project import Project

WISHES = {
    "bronze": Wish(name="bronze.more", reads=("notes",), app="tiny"),
    "json events": Wish(name="silver.events", reads=("bronze.letters",), topic="notes"),
    "json events with columns": Wish(
        name="silver.events",
        reads=("bronze.letters",),
        topic="notes",
        columns="a boolean, b int, c double, d binary, e date, f decimal(12,2), event_time timestamp",
    ),
    "json states": Wish(name="silver.states", reads=("bronze.letters",), topic="members", kept_as="latest"),
    "json states with their past": Wish(
        name="silver.states", reads=("bronze.letters",), topic="members", kept_as="history"
    ),
    "json states with their past in days": Wish(
        name="silver.states",
        reads=("bronze.letters",),
        topic="members",
        kept_as="history",
        columns="id bigint, tier string, since date",
    ),
    "debezium": Wish(
        name="silver.rows",
        reads=("bronze.letters",),
        source_table="public.rows",
        columns="id bigint, born date, photo binary",
    ),
    "debezium with its past": Wish(
        name="silver.rows",
        reads=("bronze.letters",),
        source_table="public.rows",
        kept_as="history",
        columns="id bigint, born date",
    ),
    "aggregate": Wish(name="gold.counted", reads=("silver.notes",)),
    "aggregate by day and writer": Wish(
        name="gold.counted",
        reads=("silver.notes",),
        columns="day date, member_id bigint, notes int, total decimal(12,2), written_at timestamp, title string",
        keys=("day", "member_id"),
    ),
    "view": Wish(name="gold.seen", reads=("silver.members",)),
    "view of an append table": Wish(
        name="gold.seen", reads=("silver.notes",), kept_as="view", columns="hour timestamp, notes bigint"
    ),
    "view of two tables": Wish(
        name="gold.seen",
        reads=("silver.members", "silver.notes"),
        columns="member_id bigint, notes bigint, name string",
    ),
    "view by a column of no input": Wish(
        name="gold.seen", reads=("silver.members",), columns="region string, members bigint"
    ),
}
KEPT_AS = {
    "bronze": Raw,
    "json events": Append,
    "json states": Latest,
    "json states with their past": History,
    "json states with their past in days": History,
    "debezium": Latest,
    "debezium with its past": History,
    "aggregate": Aggregate,
    "view": View,
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a copy of the tiny project."""
    return Project(tmp_path / "project")


@pytest.mark.parametrize("wish", WISHES.values(), ids=[name.replace(" ", "-") for name in WISHES])
def test_new_table_passes_check_at_once(wish: Wish, project: Project) -> None:
    """Declaration, transform, suite and case are right as they are written."""
    written = new_table(project.folder, wish)

    assert check(project.folder) == []
    assert wish.name in load(project.folder).tables
    assert all(path.is_file() for path in written)


@pytest.mark.parametrize("name", KEPT_AS)
def test_new_table_is_kept_as_its_input_suggests(name: str, project: Project) -> None:
    """What is not said is found out from what the table reads."""
    new_table(project.folder, WISHES[name])

    declared = load(project.folder)[WISHES[name].name]

    assert isinstance(declared.table.kept_as, KEPT_AS[name])
    assert declared.table.app == "tiny"


def test_keys_that_are_given_are_used(project: Project) -> None:
    """Without them the first column is the key."""
    new_table(project.folder, WISHES["aggregate by day and writer"])

    declared = load(project.folder)["gold.counted"]

    assert declared.keys == ("day", "member_id")
    assert [column.null for column in declared.columns[:2]] == [False, True]


REFUSED = {
    "a table that is there": (
        Wish(name="silver.notes", reads=("bronze.letters",)),
        "tables/silver/notes: exists already. Take another name, or delete it first.",
    ),
    "an unknown input": (
        Wish(name="gold.x", reads=("silver.note",)),
        "gold.x: there is no table silver.note. The nearest is silver.notes.",
    ),
    "an unknown topic": (
        Wish(name="bronze.x", reads=("note",), app="tiny"),
        "tables/bronze/x/table.py:7: topic note is not in topics.toml. The nearest is notes.",
    ),
    "several topics": (
        Wish(name="silver.x", reads=("bronze.letters",)),
        "silver.x: bronze.letters reads several topics. Give --topic: notes or members.",
    ),
    "an unknown way": (
        Wish(name="gold.x", reads=("silver.notes",), kept_as="agregate"),
        "gold.x: there is no way to keep called agregate. The nearest is aggregate.",
    ),
    "a way that needs more to be said": (
        Wish(name="gold.x", reads=("silver.notes",), kept_as="stateful"),
        (
            "gold.x: a stateful table is not begun by itself: what is near is yours to say. "
            "Begin with a copy of tables/gold/user_sessions, as docs/how-to/sessions-and-joins.md says."
        ),
    ),
    "a way that does not fit": (
        Wish(name="gold.x", reads=("silver.members",), kept_as="aggregate"),
        (
            "tables/gold/x/table.py:7: silver.members is kept as latest: its rows change. "
            "Keep this table as view(...), or read an append table."
        ),
    ),
    "an unknown type": (
        Wish(name="gold.x", reads=("silver.notes",), columns="a strng"),
        "type 'strng': there is no such type. Write string.",
    ),
    "an unknown layer": (
        Wish(name="glod.x", reads=("silver.notes",)),
        "glod.x: there is no layer glod. The nearest is gold.",
    ),
    "a name that cannot be": (
        Wish(name="gold.X-1", reads=("silver.notes",)),
        "gold.X-1: cannot be a table's name. Write LAYER.NAME: lower-case letters, digits and _, a letter first.",
    ),
    "keys that are no columns": (
        Wish(name="gold.x", reads=("silver.notes",), columns="a bigint, b bigint", keys=("c",)),
        "tables/gold/x/table.py:8: key c is not declared. Known columns are a, b.",
    ),
    "several bronze tables": (
        Wish(name="silver.x", reads=("bronze.letters", "bronze.letters")),
        "silver.x: reads several bronze tables. Give one bronze table, or tables that are parsed, with --reads.",
    ),
}


@pytest.mark.parametrize(("wish", "message"), REFUSED.values(), ids=[name.replace(" ", "-") for name in REFUSED])
def test_wrong_wish_writes_nothing(
    wish: Wish, message: str, project: Project, snapshot_of: Callable[[Path], dict[str, bytes]]
) -> None:
    """The error says what to do; the project is as it was."""
    before = snapshot_of(project.folder)

    with pytest.raises(DeclarationError) as caught:
        new_table(project.folder, wish)

    assert str(caught.value) == message
    assert snapshot_of(project.folder) == before


def test_first_table_of_a_project_needs_its_app(tmp_path: Path) -> None:
    """In an empty project the app cannot be found out."""
    (tmp_path / "topics.toml").write_text('[events]\nkey = "none"\n')
    wish = Wish(name="bronze.events", reads=("events",))

    with pytest.raises(DeclarationError, match="Give --app"):
        new_table(tmp_path, wish)
    new_table(tmp_path, Wish(name="bronze.events", reads=("events",), app="first"))

    assert list(load(tmp_path).tables) == ["bronze.events"]


@pytest.fixture
def snapshot_of() -> Callable[[Path], dict[str, bytes]]:
    """Give a function that reads all files of a folder."""
    return lambda folder: {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
