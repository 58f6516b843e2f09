"""An analyst reads tables of the lake, and there is no other way to use the door."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import duckdb
import pytest

from deltaworks.analyst import Analyst, connect
from deltaworks.errors import QueryError
from deltaworks.query.functions import CALLED_IN_FROM, FUNCTIONS
from deltaworks.query.process import RequestError
from deltaworks.statements import read_statement
from tests.chance import seeded
from tests.small_lake import build_lake

NEVER = (
    *("write_blob", "write_log", "json_serialize_plan", "json_serialize_sql", "json_deserialize_sql", "getenv"),
    *("current_setting", "getvariable", "nextval", "currval", "setseed", "sleep_ms", "pg_sleep", "current_query"),
    *("get_delta_test_expression", "parse_delta_filter_logline", "parse_duckdb_log_message", "get_block_size"),
    *("pg_get_viewdef", "in_search_path", "txid_current", "has_table_privilege", "inet_client_addr", "query"),
    *("read_text", "read_blob", "read_csv", "glob", "delta_scan", "sniff_csv", "which_secret", "a_new_function"),
)
Call = tuple[str, list[str | None]]
"""A function and the types of its parameters."""
SECRET = "hush-7d1f"
LISTS = "select function_name from duckdb_functions() where function_type in ('table', 'table_macro')"

# {data} is the folder above the lake; it holds secrets/shop, page.csv and another Delta table
ESCAPES = [
    # files of the machine
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('{data}/secrets/shop')",
    "select * from read_blob('{data}/lake/../secrets/*')",
    "select * from read_json('{data}/secrets/shop')",
    "select * from read_parquet('{data}/other/*.parquet')",
    "select * from glob('{data}/**')",
    "select * from sniff_csv('{data}/page.csv')",
    "select * from parquet_metadata('{data}/other/*.parquet')",
    "select * from '{data}/page.csv'",
    'from "{data}/page.csv"',
    "select * from 'page.csv'",
    "select * from main.'page.csv'",
    "select * from gold.'page.csv'",
    "with \"{data}/page.csv\" as (select 1) select * from '{data}/page.csv'",
    "select (select content from read_text('{data}/secrets/shop'))",
    "select 1 limit (select size from read_text('{data}/secrets/shop'))",
    "select * from gold.daily_orders where exists (from read_text('{data}/secrets/shop'))",
    "with x as materialized (from read_text('{data}/secrets/shop')) from x",
    "describe select * from read_csv('{data}/page.csv')",
    "summarize (from read_csv('{data}/page.csv'))",
    "explain analyze select * from read_text('{data}/secrets/shop')",
    "select list_transform([1], x -> (select content from read_text('{data}/secrets/shop')))",
    # other Delta tables, and files below the tables of this lake (hidden columns, rows deleted since)
    "select * from delta_scan('{data}/other')",
    "select * from delta_scan('{data}/lake/gold/daily_orders')",
    "select * from delta_scan('http://127.0.0.1:1/x')",
    "select * from delta_list_files('{data}/other')",
    "select * from read_parquet('{data}/lake/gold/daily_orders/*.parquet')",
    "select * from '{data}/lake/gold/daily_orders/_delta_log/00000000000000000000.json'",
    'select * from "gold.daily_orders"',
    'select * from "gold.daily_orders".main."gold.daily_orders"',
    # writing
    "copy (select 1) to '{data}/evil.csv'",
    "copy gold.daily_orders from '{data}/page.csv'",
    "export database '{data}/evil'",
    "select write_blob('{data}/evil', 'x'::blob)",
    "select WRITE_BLOB('{data}/lake/evil', 'x'::blob)",
    "select system.main.\"write_blob\"('{data}/evil', 'x'::blob)",
    "select ('{data}/evil').write_blob('x'::blob)",
    "select list_transform(['{data}/evil'], lambda p: write_blob(p, 'x'::blob))",
    "select 1 order by write_blob('{data}/evil', 'x'::blob)",
    "explain analyze select write_blob('{data}/evil', 'x'::blob)",
    "explain analyze copy (select 1) to '{data}/evil'",
    "select write_log('x')",
    "create table gold.evil as select 1",
    "create view gold.evil as select 1",
    "create macro evil() as 1",
    "create or replace temp macro starts_with(a, b) as false",
    "create secret (type s3, key_id 'a', secret 'b')",
    "create function evil() as table from read_text('{data}/secrets/shop')",
    "insert into gold.daily_orders values (1)",
    "update gold.daily_orders set orders = 0",
    "delete from gold.daily_orders",
    "truncate gold.daily_orders",
    "merge into gold.daily_orders using (select 1) on false when not matched then insert default values",
    "drop view gold.daily_orders",
    "alter table gold.daily_orders add column evil int",
    "vacuum",
    "checkpoint",
    # loosening the settings
    "attach '{data}/evil.duckdb'",
    "attach '{data}/other' as other (type delta)",
    'detach "gold.daily_orders"',
    "use gold",
    "install httpfs",
    "load httpfs",
    "load '{data}/evil.duckdb_extension'",
    "force install httpfs from 'http://127.0.0.1:1'",
    "set enable_external_access = true",
    "set global allowed_directories = ['/']",
    "set lock_configuration = false",
    "reset memory_limit",
    "pragma enable_external_access",
    "pragma database_list",
    "pragma import_database('{data}')",
    "call pragma_version()",
    "call enable_logging(storage = 'file')",
    "set variable x = 1",
    # telling of the machine
    "select getenv('HOME')",
    "select current_setting('allowed_directories')",
    "select * from duckdb_secrets()",
    "select * from duckdb_settings()",
    "select * from duckdb_databases()",
    "select * from pragma_database_list",
    "select * from information_schema.tables",
    "select * from pg_catalog.pg_class",
    "select * from sqlite_master",
    "show databases",
    "show variables",
    "select count(*) from (show tables)",
    # by the name of a part of the query, where that does not hold
    "select * from (with duckdb_databases as (select 1) select 1) a, duckdb_databases",
    "with pragma_database_list as (select * from pragma_database_list) from pragma_database_list",
    "select * from (with sqlite_master as (select 1) select 1) a, sqlite_master",
    # a query inside a text
    "select json_serialize_plan('select write_blob(''{data}/evil'', ''x''::blob)', optimize := true)",
    "explain select json_serialize_plan('select write_blob(''{data}/evil'', ''x''::blob)', optimize := true)",
    "select list_transform(['select 1'], lambda q: json_serialize_plan(q))",
    "select json_serialize_sql('select 1')",
    "select json_deserialize_sql('{{}}')",
    "select * from query('from read_text(''{data}/secrets/shop'')')",
    "select * from query_table('{data}/page.csv')",
    "select * from json_execute_serialized_sql('{{}}')",
    "from histogram_values('{data}/page.csv', a)",
    "prepare p as select 1",
    "execute p",
    "pivot gold.daily_orders on day",
    # more than one statement, and comments that hide it
    "select 1; select 2",
    "select 1; copy (select 1) to '{data}/evil'",
    "select 1 /* ; */; attach '{data}/evil.duckdb'",
    "select 1 -- ;\n; attach '{data}/evil.duckdb'",
    "/* select 1 */ copy (select 1) to '{data}/evil'",
    "explain select 1; copy (select 1) to '{data}/evil'",
    "explain /* ; */ copy (select 1) to '{data}/evil'",
    "select 1 \0; copy (select 1) to '{data}/evil'",
    "begin; select 1",
    ";",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a data folder with a lake, a secret and other files beside it."""
    folder = tmp_path_factory.mktemp("data")
    lake = build_lake(folder / "lake")
    (folder / "secrets").mkdir()
    (folder / "secrets/shop").write_text(SECRET)
    (folder / "page.csv").write_text(f"a,b\n1,{SECRET}\n")
    shutil.copytree(lake / "gold/daily_orders", folder / "other")
    return folder


@pytest.fixture(scope="module")
def analyst(data: Path) -> Iterator[Analyst]:
    """Give the open lake, with a table already in use."""
    with connect(data / "lake") as lake:
        lake.sql("select * from gold.daily_orders")
        yield lake


def files(folder: Path) -> dict[Path, bytes]:
    """Every file below the folder with what it holds."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("escape", ESCAPES)
def test_escape_is_refused(analyst: Analyst, data: Path, escape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try is an error of ours that tells nothing, and no file is made or changed; the lake still answers."""
    monkeypatch.chdir(data)
    before = files(data)

    with pytest.raises(QueryError) as refused:
        analyst.sql(escape.format(data=data))

    assert files(data) == before
    assert SECRET not in str(refused.value)
    assert "root:" not in str(refused.value)
    assert analyst.sql("select count(*) from gold.daily_orders").rows == [(2,)]


REFUSAL = (
    "only statements that read are allowed here|only tables of the lake can be read|this cannot be shown|"
    "is not a function that may be called here|no such table|cannot be the name of a part of a query|"
    r"query: \d+ statements|holds a zero byte|syntax error at or near"
)
"""What is said of a text, before DuckDB is asked to bind it."""


@pytest.mark.parametrize("escape", ESCAPES)
def test_escape_is_refused_by_its_text_alone(analyst: Analyst, data: Path, escape: str) -> None:
    """Before anything is bound or run: what the system would refuse is another door."""
    with pytest.raises(QueryError, match=REFUSAL):
        judge(escape.format(data=data), known=analyst.tables())


def judge(text: str, *, known: tuple[str, ...]) -> None:
    """Parse by a DuckDB of this process, and judge."""
    with duckdb.connect() as parser:
        read_statement(text, parse=lambda question: parser.execute(question).fetchall(), known=known)


@pytest.mark.parametrize("name", NEVER)
def test_no_function_of_these_is_ever_allowed(name: str) -> None:
    """Each reads, writes, waits, keeps a state, tells of the machine, or takes SQL as text."""
    with pytest.raises(QueryError, match="is not a function that may be called here"):
        judge(f"select {name}()", known=())


def test_comments_without_an_end_are_judged_at_once() -> None:
    """Patterns that go back would try each way to split them."""
    with pytest.raises(QueryError, match="query: 0 statements"):
        judge("/**/" * 5000 + "explain", known=())


def test_a_text_that_is_too_long_is_refused() -> None:
    """Before it is sent anywhere."""
    with pytest.raises(QueryError, match="has more than 1,000,000 characters"):
        judge("select 1 --" + "x" * 1_000_000, known=())


def test_no_view_of_duckdb_is_reached_by_a_name_given_in_with(analyst: Analyst) -> None:
    """Where the name does not hold, DuckDB takes its own view; a new version may bring new ones."""
    views = analyst._process().all("select distinct view_name from duckdb_views() where internal", seconds=30)

    assert len(views) > 10
    for (name,) in views:
        with pytest.raises(QueryError, match="does not exist|no such table|cannot be the name of a part"):
            analyst.sql(f'select * from (with "{name}" as (select 1) select 1) a, "{name}"')

    assert {("duckdb_databases",), ("sqlite_master",), ("pragma_database_list",)} <= set(views)


def test_every_function_in_from_is_refused_but_a_few(analyst: Analyst) -> None:
    """A new DuckDB may bring new functions that read: those that are allowed are named, all others are refused."""
    functions = {str(row[0]) for row in duckdb.sql(LISTS).fetchall()}
    harmless = {"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"}

    allowed = set()
    for function in functions:
        try:
            analyst.sql(f"select * from {function}()")
        except QueryError as error:
            if "only tables of the lake can be read" in str(error):
                continue
        allowed.add(function)

    assert len(functions) > 60
    assert allowed == harmless


def test_every_function_of_the_delta_extension_is_refused(analyst: Analyst) -> None:
    """The extension's functions look past DuckDB's settings (write_blob writes anywhere), so none may be called."""
    lists = "select distinct function_name, function_type from duckdb_functions()"
    plain = set(duckdb.sql(lists).fetchall())
    # asked behind the door: analysts cannot list functions
    brought = sorted(set(analyst._process().all(lists, seconds=30)) - plain)

    for name, kind in brought:
        call = f"select * from {name}()" if kind in {"table", "table_macro"} else f"select {name}()"
        with pytest.raises(QueryError, match="may be called here|only tables of the lake"):
            analyst.sql(call)

    assert ("write_blob", "scalar") in brought


@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_text('/etc/passwd')",
        "copy (select 1) to '{data}/evil.csv'",
        "attach '{data}/evil.duckdb'",
        "set enable_external_access = true",
        "set allowed_directories = ['/']",
        "install httpfs",
        "load httpfs",
    ],
)
def test_duckdb_itself_is_locked_too(analyst: Analyst, data: Path, statement: str) -> None:
    """Were a statement misjudged, DuckDB's own settings would still keep it inside the lake's folder."""
    before = files(data)

    with pytest.raises(RequestError):
        analyst._process().all(statement.format(data=data), seconds=30)

    assert files(data) == before


def test_a_variable_of_the_caller_is_not_a_table(analyst: Analyst) -> None:
    """DuckDB's Python client takes unknown tables for variables; ours does not."""
    frame = duckdb.sql("select 1 as a").to_arrow_table()

    with pytest.raises(QueryError, match="frame: no such table"):
        analyst.sql("select * from frame")

    assert frame.num_rows == 1


def test_every_function_is_allowed_or_refused(analyst: Analyst) -> None:
    """Of all that DuckDB knows with its extension, by whatever kind: refused unless it is named as harmless."""
    every = {
        str(name).lower()
        for (name,) in analyst._process().all("select function_name from duckdb_functions()", seconds=30)
    }
    allowed = set()

    for name in sorted(every):
        try:
            analyst.sql(f'select "{name}"()')
        except QueryError as error:
            if "is not a function that may be called here" in str(error):
                continue
        allowed.add(name)

    assert len(every) > 900
    assert allowed == every & (FUNCTIONS | CALLED_IN_FROM)
    assert FUNCTIONS - every == set(), "allowed, and not known to this DuckDB"


TEXTS = (
    *("'{data}/evil'", "'{data}/lake/evil'", "'{data}/secrets/shop'", "'{data}/lake/gold/daily_orders'", "'{data}/**'"),
    *("'select write_blob(''{data}/evil'', ''x''::blob)'", "'copy (select 1) to ''{data}/evil'''", "'write_blob'"),
    *("'gold.daily_orders'", "'enable_external_access'", "'a'", "'(a|b)*'", "'year'", "'UTC'", "'{{\"a\": [1]}}'"),
)
NUMBERS = ("0", "1", "-1", "7::utinyint", "1.50::decimal(10, 2)", "0.1::double", "'nan'::double", "orders", "revenue")
ANY = (*TEXTS, *NUMBERS, "null", "[1, 2, null]", "['a', 'b']", "{{'a': 1}}", "map {{'a': 1}}", "date '2026-11-20'")
ARGUMENTS = {
    "VARCHAR": TEXTS,
    "JSON": ("'{{\"a\": [1]}}'::json", "'[]'::json"),
    "BLOB": ("'x'::blob", "'{data}/evil'::blob"),
    "BOOLEAN": ("true", "null::boolean"),
    "BIT": ("'101'::bit",),
    "UUID": ("uuid()",),
    "DATE": ("date '2026-11-20'", "day"),
    "TIME": ("time '10:00:00'",),
    "TIMESTAMP": ("timestamp '2026-11-20 12:00:00'",),
    "TIMESTAMP WITH TIME ZONE": ("timestamptz '2026-11-20 12:00:00+00'",),
    "INTERVAL": ("interval '1 day'",),
    "LAMBDA": ("lambda x: x", "lambda x: true", "lambda x, y: x"),
    "MAP": ("map {{'a': '{data}/evil'}}",),
    "STRUCT": ("{{'a': '{data}/evil'}}",),
}
"""Values by the type of a parameter; {data} is the folder above the lake."""
LISTS_OF = ("[1, 2, null]", "['a', '{data}/evil']", "[0.1::double, 2]")


def _value(kind: str, chance: Random) -> str:
    if "[" in kind:
        return chance.choice(LISTS_OF)
    if kind.endswith(("INT", "INTEGER", "DOUBLE", "FLOAT")):
        return chance.choice(NUMBERS)
    return chance.choice(ARGUMENTS.get(kind.partition("(")[0], ANY))


def _call(name: str, kinds: list[str | None], inner: Call | None, chance: Random) -> str:
    given = [_value(kind or "ANY", chance) for kind in kinds]
    if inner and given:
        given[chance.randrange(len(given))] = _call(*inner, None, chance)
    return f"{name}({', '.join(given)})"


def test_no_function_reaches_a_file(analyst: Analyst, data: Path) -> None:
    """Two thousand calls by chance of what is allowed, nested, with paths and SQL: nothing is read, made or changed."""
    chance = seeded()
    known = analyst._process().all("select function_name, parameter_types from duckdb_functions()", seconds=30)
    calls: list[Call] = [(name, kinds or []) for name, kinds in known if name in FUNCTIONS and name.isidentifier()]
    before, answered = files(data), 0

    for number in range(2000):
        inner = chance.choice((None, None, chance.choice(calls)))
        call = _call(*calls[number % len(calls)], inner, chance).format(data=data)
        try:
            told = str(analyst.sql(f"select {call} from gold.daily_orders", rows_max=100).rows)
            answered += 1
        except QueryError as error:
            told = str(error)
        assert SECRET not in told, call

    assert answered > 500
    assert files(data) == before
    assert analyst.sql("select count(*) from gold.daily_orders").rows == [(2,)]
