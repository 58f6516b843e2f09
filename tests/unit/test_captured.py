"""What a source database, its publication and the connector do not give to the tables that read them."""

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from deltaworks.local.captured import gaps
from deltaworks.words import Column, Table, debezium, history, keep, latest
from deltaworks.words.keeping import History, Latest
from tests.scratch_postgres import ScratchPostgres

CONFIG = {"publication.name": "pub", "time.precision.mode": "adaptive_time_microseconds",
          "table.include.list": "public.[a-z]+"}  # fmt: skip
SOURCE = """
    create type place as (street text, town text);
    create table goods (
        id int primary key, name text, net numeric, gross numeric generated always as (net * 1.19) stored,
        made timestamp(3), seen timestamp(0), changed timestamp, at timestamptz(0), put place, waits interval[],
        hidden text, rate int default 7);
    create table pairs (a int, b int, c int unique, primary key (a, b));
    create table loose (id int, name text);
    create table mute (id int primary key);
    alter table mute replica identity nothing;
    create table whole (id int, name text, twice int generated always as (id * 2) stored);
    alter table whole replica identity full;
    create table mails (id int primary key, mail int unique);
    alter table mails replica identity full;
    create table bymail (id int primary key, mail int not null unique);
    alter table bymail replica identity using index bymail_mail_key;
    create table "unique" (id int not null unique);
    alter table "unique" replica identity using index unique_id_key;
    create table uniques (z int not null unique, a int not null unique, id int);
    alter table uniques replica identity using index uniques_z_key;
    create table few (id int not null);
    create unique index on few (id) where id > 0;
    alter table few replica identity full;
    create table late (id int primary key deferrable);
    alter table late replica identity full;
    create table parts (id int, day date, primary key (id, day)) partition by range (day);
    create table parts_now partition of parts for values from ('2026-01-01') to ('2027-01-01');
    create table other (id int primary key);
    create table "Odd" (id int primary key);
    create publication pub for table
        goods (id, name, net, made, seen, changed, at, put, waits, rate), pairs, loose, mute, parts,
        whole, mails, bymail, "unique", uniques, few, late;
"""


@pytest.fixture
def source(postgres: ScratchPostgres) -> Iterator["psycopg.Connection[Any]"]:
    """Give a connection to a source database."""
    with psycopg.connect(postgres.database(f"captured_{uuid.uuid4().hex}"), autocommit=True) as connection:
        connection.execute(SOURCE)
        yield connection


def reading(table: str, *columns: Column, kept_as: Latest | History | None = None) -> Table:
    """A table over changes of this one, by its id unless said otherwise."""
    reads, kept = debezium("bronze.changes", table=table), kept_as or latest(keys=("id",))
    return Table(app="shop", reads=reads, kept_as=kept, owner="tests", columns=columns)


def column(name: str, kind: str = "string", **given: Any) -> Column:
    """A column."""
    return Column(name, kind, doc="What it is.", **given)


ID = column("id", "int", null=False)


def told(source: "psycopg.Connection[Any]", table: Table, **config: str) -> list[tuple[str, str]]:
    """What is found of a table: places and findings."""
    found = list(gaps(source, {name: value for name, value in (CONFIG | config).items() if value}, {"silver.t": table}))
    assert all(one.next_step for one in found)
    return [(one.place, one.finding) for one in found]


@pytest.mark.parametrize(
    ("one", "finding"),
    [
        (column("name"), None),
        (column("title", previously="name"), None),
        (column("fresh"), None),
        (column("fresh", null=False), "public.goods has no such column: every row is refused"),
        (column("arrived", "timestamp", wire="arrival"), None),
        (column("gross", "decimal(9,2)", absent="kept"), None),
        (column("net", "decimal(9,2)"), None),
        (column("net"), "is numeric in the source: NaN and infinite values come as the connector's words for them"),
        (column("gross", "decimal(9,2)"), "is generated in the source, and Postgres does not send such values"),
        (column("hidden"), "is not in the publication's list of columns"),
        (column("put"), "is of type place, for which the connector sends nothing"),
        (column("waits"), "is of type interval[], for which the connector sends nothing"),
        (column("made", "timestamp"), "is sent in millis, declared is micros: another time is read"),
        (column("seen", "timestamp"), "is sent in millis, declared is micros: another time is read"),
        (column("made", "timestamp", wire="millis"), None),
        (column("changed", "timestamp"), None),
        (column("changed", "timestamp", wire="millis"), "is sent in micros, declared is millis: another time is read"),
        (column("at", "timestamp"), None),
        (column("made", "string"), None),
    ],
)
def test_what_a_column_would_lack_is_told(source: "psycopg.Connection[Any]", one: Column, finding: str | None) -> None:
    """Else it would be null, another time, or refused with each row, and nothing would say why."""
    expected = [] if finding is None else [(f"silver.t.{one.name}", finding)]

    assert told(source, reading("public.goods", ID, one)) == expected


def test_what_a_row_loses_with_its_keys_is_told(source: "psycopg.Connection[Any]") -> None:
    """No record has a generated value: one is kept under the keys that the row had, which it may leave for others."""
    twice = column("twice", "int", absent="kept")
    keys = [("silver.t", f"is kept by id, {KEPT.format('whole')}")]

    assert told(source, reading("public.whole", ID, twice)) == [
        *keys,
        (
            "silver.t.twice",
            "is generated in the source, and a row that gets other keys comes without it: it is not there then",
        ),
    ]


def test_units_follow_the_connectors_mode(source: "psycopg.Connection[Any]") -> None:
    """In its mode `connect` all timestamps are milliseconds."""
    table = reading("public.goods", ID, column("changed", "timestamp"), column("made", "timestamp", wire="millis"))

    assert told(source, table) == []
    assert [place for place, _ in told(source, table, **{"time.precision.mode": "connect"})] == ["silver.t.changed"]


@pytest.mark.parametrize(
    ("config", "finds"),
    [
        ({}, False),
        ({"value.converter": "org.apache.kafka.connect.json.JsonConverter"}, True),
        ({"value.converter": "Json", "value.converter.replace.null.with.default": "false"}, False),
        ({"value.converter.replace.null.with.default": "true"}, True),
    ],
)
def test_a_default_that_is_sent_for_null_is_told(
    source: "psycopg.Connection[Any]", config: dict[str, str], *, finds: bool
) -> None:
    """As a connector's own converter does unless it is told otherwise; the local stack's worker does not."""
    found = told(source, reading("public.goods", ID, column("rate", "int"), column("name")), **config)

    finding = "may be null and has a default in the source, which the connector sends instead of null"
    assert found == ([("silver.t.rate", finding)] if finds else [])


def test_a_column_for_undeclared_fields_is_no_column_of_the_source(source: "psycopg.Connection[Any]") -> None:
    """It has what the table does not declare."""
    reads = debezium("bronze.changes", table="public.goods", unknown_fields=keep("rest"))
    table = Table(app="shop", reads=reads, kept_as=latest(keys=("id",)), owner="tests", columns=(ID, column("rest")))

    assert told(source, table) == []


@pytest.mark.parametrize(
    ("table", "config", "finding"),
    [
        ("public.gods", {}, "reads public.gods, which the source does not have"),
        ("public.Goods", {}, "reads public.Goods, which the source does not have"),
        ("public.other", {}, "public.other is not in the publication pub"),
        ("public.Odd", {}, "public.Odd is not in the publication pub"),
        ("public.goods", {"publication.name": "none"}, "public.goods is not in the publication none"),
        ("public.goods", {"publication.name": ""}, "public.goods is not in the publication dbz_publication"),
        ("public.goods", {"table.include.list": "public.good, public.pairs"},
         "public.goods is not in the connector's table.include.list"),
        ("public.goods", {"table.include.list": "public.pairs, PUBLIC.GOODS"}, None),
        ("public.goods", {"table.include.list": ""}, None),
        ("public.goods", {"table.include.list": "", "table.exclude.list": "public.go.*"},
         "public.goods is in the connector's table.exclude.list"),
        ("public.goods", {"snapshot.include.collection.list": "public.pairs"},
         "public.goods is not in the connector's snapshot.include.collection.list"),
        ("public.parts", {}, "changes of public.parts are published under its partitions' names, not its own"),
    ],
)  # fmt: skip
def test_a_table_that_is_not_captured_is_told(
    source: "psycopg.Connection[Any]", table: str, config: dict[str, str], finding: str | None
) -> None:
    """It would stay empty, or stop where it is."""
    expected = [] if finding is None else [("silver.t", finding)]

    assert told(source, reading(table, ID), **config) == expected


def test_a_role_that_may_not_read_a_table_is_told(source: "psycopg.Connection[Any]") -> None:
    """Its snapshot would fail, and with it the connector; a role that this server does not know is another's matter."""
    source.execute("drop role if exists captor")
    source.execute("create role captor")
    table = reading("public.goods", ID)

    forbidden = told(source, table, **{"database.user": "captor"})
    source.execute("grant select on goods to captor")
    allowed = told(source, table, **{"database.user": "captor"})
    source.execute("drop owned by captor; drop role captor")

    assert forbidden == [("silver.t", "the connector's role captor may not read public.goods")]
    assert allowed == told(source, table, **{"database.user": "nobody"}) == []


def test_partitions_that_are_declared_are_captured(source: "psycopg.Connection[Any]") -> None:
    """Under their own names, each of which must be in the lists."""

    def parts(partitions: str) -> Table:
        reads = debezium("bronze.changes", table="public.parts", partitions=partitions)
        keys, columns = latest(keys=("id", "day")), (ID, column("day", "date"))
        return Table(app="shop", reads=reads, kept_as=keys, owner="tests", columns=columns)

    listed = {"table.include.list": "public.[a-z_]+"}

    assert told(source, parts("public.parts_*"), **listed) == []
    assert told(source, parts("public.parts_*")) == [
        ("silver.t", "public.parts_now is not in the connector's table.include.list")
    ]
    assert told(source, parts("public.parts_2*"), **listed) == [
        ("silver.t", "public.parts_now is a partition of public.parts, and not named by partitions='public.parts_2*'")
    ]


def test_a_table_that_is_called_like_a_partition_is_told(source: "psycopg.Connection[Any]") -> None:
    """Its rows would be taken for the table's; not those of one that does not come, nor of one that inherits."""
    reads = debezium("bronze.changes", table="public.parts", partitions="public.parts_*")
    keys, columns = latest(keys=("id", "day")), (ID, column("day", "date"))
    table = Table(app="shop", reads=reads, kept_as=keys, owner="tests", columns=columns)
    source.execute("create table parts_archive (id int, day date, primary key (id, day))")
    source.execute("create table parts_then partition of parts for values from ('2025-01-01') to ('2026-01-01')")
    source.execute("create table parts_once () inherits (parts_archive)")

    def found(**config: str) -> list[tuple[str, str]]:
        return told(source, table, **({"table.include.list": "public.[a-z_]+"} | config))

    unpublished = found()
    source.execute("alter publication pub add table only parts_archive")
    published = found(**{"snapshot.include.collection.list": "public.parts, public.parts_(now|then)"})
    excluded = found(**{"table.include.list": "", "table.exclude.list": "public.parts_archive"})
    unlisted = found(**{"table.include.list": "public.parts, public.parts_now, public.parts_then"})
    source.execute("alter publication pub set (publish_via_partition_root = true)")
    by_root = found()

    finding = "takes the rows of public.parts_archive too, which partitions='public.parts_*' names and is none"
    assert (published, by_root) == ([("silver.t", finding)],) * 2
    assert unpublished == excluded == unlisted == []


def test_tables_that_inherit_are_partitions(source: "psycopg.Connection[Any]") -> None:
    """As before Postgres had any, however deep; others of such a name are none."""
    source.execute(
        "create table logs (id int primary key); create table logs_now () inherits (logs);"
        "create table logs_then () inherits (logs); create table logs_once () inherits (logs_then);"
        "alter publication pub add table logs"
    )
    reads = debezium("bronze.changes", table="public.logs", partitions="public.logs_*")
    table = Table(app="shop", reads=reads, kept_as=latest(keys=("id",)), owner="tests", columns=(ID,))
    listed = {"table.include.list": "public.[a-z_]+"}

    own = told(source, table, **listed)
    source.execute("create table logs_audit (id int primary key); alter publication pub add table logs_audit")

    finding = "takes the rows of public.logs_audit too, which partitions='public.logs_*' names and is none"
    assert (own, told(source, table, **listed)) == ([], [("silver.t", finding)])


def test_partitions_published_as_their_table_are_captured(source: "psycopg.Connection[Any]") -> None:
    """As the finding says."""
    source.execute("alter publication pub set (publish_via_partition_root = true)")

    assert told(source, reading("public.parts", ID, column("day", "date"), kept_as=latest(keys=("id", "day")))) == []


KEPT = "and no unique index of public.{} sees to it at each moment: of rows that have the same one is kept"
REFUSED = "are keyed by {}: updates and deletions are refused"
LACKS = "and its replica identity lacks {}: deletions name another row, and where a key changes the old row stays"
KEYS: dict[tuple[str, str, str], list[str]] = {
    ("pairs", "a b", "default"): [],
    ("pairs", "b a", "default"): [],
    ("pairs", "c", "default"): [f"is kept by c, and records of public.pairs {REFUSED.format('a, b')}"],
    ("pairs", "a", "default"): [f"is kept by a, {KEPT.format('pairs')}"],
    ("pairs", "a b", "full"): [
        "declares replica identity full, and public.pairs has another: what was before is invented"
    ],
    ("loose", "id", "default"): [
        "public.loose has no primary key, and no other identity: Postgres refuses updates and deletions"
    ],
    ("mute", "id", "default"): ["public.mute has replica identity nothing: Postgres refuses updates and deletions"],
    ("whole", "id", "default"): [f"is kept by id, {KEPT.format('whole')}"],
    ("mails", "mail", "full"): [],
    ("mails", "mail", "default"): [f"is kept by mail, and records of public.mails {REFUSED.format('id')}"],
    ("bymail", "id", "default"): [f"records of public.bymail are keyed by id, {LACKS.format('id')}"],
    ("unique", "id", "default"): [],
    ("uniques", "a", "default"): [f"records of public.uniques are keyed by a, {LACKS.format('a')}"],
    ("few", "id", "default"): [f"is kept by id, {KEPT.format('few')}"],
    ("late", "id", "default"): [f"is kept by id, {KEPT.format('late')}"],
}


@pytest.mark.parametrize(("table", "keys", "identity"), KEYS)
def test_keys_are_held_against_those_of_the_source(
    source: "psycopg.Connection[Any]", table: str, keys: str, identity: Any
) -> None:
    """And against what the connector takes for a record's key, and what Postgres tells it of the row of before."""
    columns = tuple(column(name, "int", null=False) for name in keys.split())
    kept = latest(keys=tuple(keys.split()))
    reads = debezium("bronze.changes", table=f"public.{table}", replica_identity=identity)
    declared = Table(app="shop", reads=reads, kept_as=kept, owner="tests", columns=columns)

    assert told(source, declared) == [("silver.t", finding) for finding in KEYS[table, keys, identity]]


def test_the_connector_may_take_other_columns_for_the_key(source: "psycopg.Connection[Any]") -> None:
    """Those that the replica identity has; of others the row of before is not told, and Debezium invents its key."""
    config = {"message.key.columns": "public.none:x;public.(mails|pairs):mail,c"}
    mails, pairs = (reading(f"public.{name}", column(key, "int", null=False), kept_as=history(keys=(key,)))
                    for name, key in (("mails", "mail"), ("pairs", "c")))  # fmt: skip

    assert told(source, reading("public.mails", ID), **{"message.key.columns": "public.mails: id"}) == []
    assert [found for _, found in told(source, mails, **{"message.key.columns": "public.mails:mail"})] == []
    assert [found for _, found in told(source, pairs, **config)] == [
        f"records of public.pairs are keyed by mail, c, {LACKS.format('mail, c')}"
    ]


@pytest.mark.parametrize(("name", "kept", "said"), [("goods", ("name",), True), ("pairs", ("c",), False)])
def test_what_postgres_18_wants_of_generated_columns_is_said(
    source: "psycopg.Connection[Any]", name: str, kept: tuple[str, ...], *, said: bool
) -> None:
    """It refuses updates, at whoever sends them, once an identity has columns that are not published."""
    table = reading(f"public.{name}", *(column(key, "int") for key in kept), kept_as=latest(keys=kept))

    ways = [one.next_step for one in gaps(source, CONFIG, {"silver.t": table}) if "identity full" in one.next_step]

    assert len(ways) == 1
    assert ("publish_generated_columns" in ways[0]) is said
