"""Analysts ask the lake with SQL, from Python."""

import datetime as dt
import shutil
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaworks.analyst import Analyst, connect
from deltaworks.errors import QueryError
from tests.small_lake import NOON, build_lake, orders

ENDLESS = "select sum(a.range * b.range) from range(100000000) a, range(100000000) b"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Give a lake of its own to a test that changes it."""
    return build_lake(tmp_path / "lake")


def test_every_table_with_a_log_is_listed(lake: Path) -> None:
    """Side tables and ops tables count, folders without a Delta log do not."""
    (lake / "gold/not_a_table").mkdir()
    (lake / "gold/.hidden/_delta_log").mkdir(parents=True)

    tables = connect(lake).tables()

    assert tables == (
        "gold.daily_orders",
        "gold.daily_orders__late",
        "ops.ledger",
        "silver.everything",
        "silver.page_views__quarantine",
    )


def test_show_tables_opens_no_table(lake: Path) -> None:
    """A table that cannot be read does not hide the others."""
    (lake / "gold/broken/_delta_log").mkdir(parents=True)

    every = connect(lake).sql("show tables").rows
    gold = connect(lake).sql("SHOW TABLES FROM gold").rows

    assert len(every) == 6
    assert gold == [("gold.broken",), ("gold.daily_orders",), ("gold.daily_orders__late",)]


def test_values_are_exact(lake: Path) -> None:
    """Decimals, big integers, microseconds and nested values arrive as they were written."""
    row, nulls = connect(lake).sql("select * from silver.everything order by small nulls last").dicts()

    assert row["big"] == 9_007_199_254_740_993
    assert row["price"] == Decimal("19.90")
    assert row["seen"] == NOON
    assert row["local"] == NOON.replace(tzinfo=None)
    assert row["raw"] == b'{"a"}\x00\xff'
    assert row["address"] == {"city": "Łódź", "since": dt.date(2020, 1, 1)}
    assert set(nulls.values()) == {None}


def test_arrow_keeps_the_types_of_the_table(lake: Path) -> None:
    """An Arrow answer has the table's own types, so pandas and polars see decimals and UTC times."""
    table = connect(lake).arrow("select day, orders, revenue from gold.daily_orders order by day")

    assert table.schema.types == [pa.date32(), pa.int64(), pa.decimal128(18, 2)]
    assert table.to_pylist()[0] == {"day": dt.date(2026, 11, 20), "orders": 2000, "revenue": Decimal("20.10")}


def test_each_query_sees_the_newest_commit(lake: Path) -> None:
    """An open lake is not a snapshot: the next question sees what was committed since."""
    analyst = connect(lake)
    before = analyst.sql("select count(*) from gold.daily_orders").rows

    write_deltalake(lake / "gold/daily_orders", orders(22), mode="append")
    appended = analyst.sql("select count(*) from gold.daily_orders").rows
    DeltaTable(lake / "gold/daily_orders").delete("orders > 2000")
    deleted = analyst.sql("select count(*) from gold.daily_orders").rows

    assert (before, appended, deleted) == ([(2,)], [(3,)], [(1,)])


def test_a_new_column_a_new_table_and_a_table_made_anew_are_seen(lake: Path) -> None:
    """What DuckDB remembers of a table never outlives the table."""
    analyst = connect(lake)
    analyst.sql("select * from gold.daily_orders")

    wider = orders(23).append_column("paid", pa.array([1], pa.int64()))
    write_deltalake(lake / "gold/daily_orders", wider, mode="append", schema_mode="merge")
    widened = analyst.sql("select * from gold.daily_orders")
    shutil.rmtree(lake / "gold/daily_orders")
    write_deltalake(lake / "gold/daily_orders", orders(1))
    anew = analyst.sql("select orders from gold.daily_orders").rows
    write_deltalake(lake / "gold/page_views", orders(2))
    added = analyst.sql("select orders from gold.page_views").rows

    assert [column.name for column in widened.columns] == ["day", "orders", "revenue", "paid"]
    assert (anew, added) == ([(100,)], [(200,)])


def test_one_query_sees_one_version_of_a_table(lake: Path) -> None:
    """A commit between two batches of an answer does not mix versions."""
    analyst = connect(lake)

    with analyst.stream("from gold.daily_orders a, range(5000)") as (_, batches):
        first = next(batches)
        write_deltalake(lake / "gold/daily_orders", orders(22), mode="overwrite")
        rest = [row for batch in batches for row in batch]

    assert len(first) + len(rest) == 10_000


def test_system_columns_of_gold_are_hidden(lake: Path) -> None:
    """Gold shows what was declared; silver, ops and the side tables of gold show all."""
    analyst = connect(lake)

    gold = analyst.sql("select * from gold.daily_orders")
    late = analyst.sql("select * from gold.daily_orders__late")
    quarantine = analyst.sql("select * from silver.page_views__quarantine")

    assert [column.name for column in gold.columns] == ["day", "orders", "revenue"]
    assert [column.name for column in late.columns] == ["day", "orders", "revenue", "_seq"]
    assert [column.name for column in quarantine.columns] == ["_reason", "_topic"]
    with pytest.raises(QueryError, match='"_seq" not found'):
        analyst.sql("select _seq from gold.daily_orders")


@pytest.mark.parametrize(
    "sql",
    [
        "with paid as (select * from gold.daily_orders) select count(*) from paid",
        "FROM Gold.Daily_Orders SELECT count(*)",
        "select count(*) from gold.daily_orders; -- the end",
        "/* a comment; with a semicolon */ select count(*) from gold.daily_orders",
        "select count(*) from gold.daily_orders where day in (select day from silver.everything) or true",
        "select 2 from range(1)",
        "with recursive t as (select 1 as n union all select n + 1 from t where n < 2) select max(n) from t",
        "values (2)",
    ],
)
def test_the_ways_to_write_a_query(lake: Path, sql: str) -> None:
    """WITH, FROM first, comments, sub-queries, VALUES and names in any case are plain reading."""
    rows = connect(lake).sql(sql).rows

    assert rows == [(2,)]


def test_a_table_can_be_described_summed_up_and_explained(lake: Path) -> None:
    """DESCRIBE, SUMMARIZE and EXPLAIN work on tables of the lake."""
    analyst = connect(lake)

    described = analyst.sql("describe gold.daily_orders").rows
    summed_up = analyst.sql("summarize gold.daily_orders").dicts()
    explained = analyst.sql("-- how\nexplain analyze select * from gold.daily_orders").rows

    assert [row[:2] for row in described] == [("day", "DATE"), ("orders", "BIGINT"), ("revenue", "DECIMAL(18,2)")]
    assert [row["max"] for row in summed_up] == ["2026-11-21", "2100", "21.10"]
    assert "EXPLAIN_ANALYZE" in str(explained[0][1])


def test_columns_of_one_name_are_told_apart(lake: Path) -> None:
    """A mapping cannot hold two values under one name, so the second gets a number."""
    answer = connect(lake).sql("select 1 as a, 2 as a, 3 as a_1")

    assert answer.dicts() == [{"a": 1, "a_1": 2, "a_1_1": 3}]


def test_rows_left_out_are_told(lake: Path) -> None:
    """With rows_max the answer says whether there were more."""
    analyst = connect(lake)

    cut = analyst.sql("from range(10)", rows_max=9)
    whole = analyst.sql("from range(10)", rows_max=10)

    assert (len(cut.rows), cut.more) == (9, True)
    assert (len(whole.rows), whole.more) == (10, False)


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("select * from gold.daily_order", "gold.daily_order: no such table. Nearest: gold.daily_orders"),
        ("select * from daily_orders", "daily_orders: no such table. Nearest: gold.daily_orders."),
        ("select * from silver.daily_orders", "silver.daily_orders: no such table. Nearest: gold.daily_orders."),
        ("select * from zebra.crossing", 'zebra.crossing: no such table. Run "show tables" to see what there is.'),
        ("select * from other.gold.daily_orders", "other.gold.daily_orders: no such table. Nearest"),
        (
            "select ordrs from gold.daily_orders",
            'query line 1: Referenced column "ordrs" not found in FROM clause. Candidate bindings: "orders".',
        ),
        ("select\n ordrs\nfrom gold.daily_orders", "query line 2: "),
        ("select fluor(1)", "fluor(): is not a function that may be called here. Nearest: floor."),
        ("selec 1", 'query: syntax error at or near "selec". Mend the SQL.'),
        ("select 'x'::int", "query line 1: Could not convert string 'x' to INT32. Mend the SQL."),
        ("", "query: 0 statements. Give exactly one."),
        ("select ?", "query: Values were not provided"),
        ("select 1" + "+1" * 3000, "query: is nested too deeply. Give its parts names with WITH."),
        ("pivot gold.daily_orders on day", "query: only statements that read are allowed here. Give PIVOT its values"),
        ("select * from gold.daily_orders at (version => 0)", "gold.daily_orders: earlier versions cannot be asked"),
    ],
)
def test_a_mistake_is_told_in_one_line(lake: Path, sql: str, error: str) -> None:
    """Place, finding, next step; never DuckDB's own exception."""
    with pytest.raises(QueryError) as raised:
        connect(lake).sql(sql)

    assert str(raised.value).startswith(error)
    assert "\n" not in str(raised.value)


def test_an_empty_lake_names_the_next_step(tmp_path: Path) -> None:
    """Before the first commit there is nothing to ask."""
    with pytest.raises(QueryError, match='no tables here yet. Run "deltaworks up"'):
        connect(tmp_path / "lake").sql("select 1")


def test_a_table_that_cannot_be_read_is_named(lake: Path) -> None:
    """A torn log is one line with the table's name; other tables answer."""
    (lake / "gold/daily_orders/_delta_log/00000000000000000001.json").write_text('{"add": {')
    (lake / "gold/empty/_delta_log").mkdir(parents=True)
    analyst = connect(lake)

    for table in ("gold.daily_orders", "gold.empty"):
        with pytest.raises(QueryError, match=f"{table}: cannot be read"):
            analyst.sql(f"select * from {table}")

    assert analyst.sql("select count(*) from ops.ledger").rows == [(3,)]


def test_a_query_ends_when_its_time_is_up(lake: Path) -> None:
    """The limit ends the query, not the analyst's session."""
    analyst = connect(lake)

    with pytest.raises(QueryError, match=r"stopped after 0\.2 s. Narrow it, or give it more time"):
        analyst.sql(ENDLESS, timeout_seconds=0.2)
    with pytest.raises(QueryError, match=r"stopped after 0\.2 s"):
        analyst.arrow(ENDLESS, timeout_seconds=0.2)

    assert analyst.sql("select count(*) from ops.ledger").rows == [(3,)]


def test_a_query_ends_when_its_memory_is_used_up(lake: Path) -> None:
    """Nothing spills to disk: a query that needs too much is refused with the way out."""
    analyst = connect(lake, memory="64MB")

    with pytest.raises(QueryError, match="needs more memory than it may use. Narrow it"):
        analyst.sql("select list(range) from range(100000000)")

    assert analyst.sql("select count(*) from ops.ledger").rows == [(3,)]


@pytest.mark.parametrize("memory", ["", "lots", "1", "-1GB", "1GB; select 1"])
def test_memory_is_an_amount(lake: Path, memory: str) -> None:
    """A limit that means nothing is refused before DuckDB starts."""
    with pytest.raises(QueryError, match="not an amount of memory"):
        connect(lake, memory=memory)


def test_a_lake_may_lie_in_any_folder(tmp_path: Path) -> None:
    """A space, a quote or a letter of another language in the path is only a path."""
    lake = build_lake(tmp_path / "It's größer" / "lake")

    rows = connect(lake).sql("select count(*) from gold.daily_orders").rows

    assert rows == [(2,)]


def test_threads_share_a_lake(lake: Path) -> None:
    """Questions from several threads wait for each other and do not mix."""
    analyst = connect(lake)
    answers: list[object] = []

    def ask(number: int) -> None:
        answers.extend(analyst.sql(f"select {number} from gold.daily_orders").rows)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers, key=str) == sorted([(number,) for number in range(8)] * 2, key=str)


def test_a_closed_lake_says_so(lake: Path) -> None:
    """After the with statement a question is an error of ours."""
    with Analyst(lake) as analyst:
        analyst.sql("select 1")

    with pytest.raises(QueryError, match="this lake was closed"):
        analyst.sql("select 1")


_FORGETS_TO_CLOSE = """
import atexit, sys
from pathlib import Path

def tell():  # runs last
    try:
        lake.sql("select 1")
    except Exception as error:
        print(error)

atexit.register(tell)
from deltaworks.analyst import connect
lake = connect(Path(sys.argv[1]))
lake.sql("select count(*) from gold.daily_orders")
"""


def test_a_forgotten_lake_is_closed_before_python_ends(lake: Path) -> None:
    """DuckDB's threads would outlive the interpreter, which now and then aborts then."""
    ended = subprocess.run(
        [sys.executable, "-c", _FORGETS_TO_CLOSE, str(lake)], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "closed" in ended.stdout
