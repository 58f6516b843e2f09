"""`deltaworks sql`: a table for people, JSON and CSV for programs."""

import csv
import datetime as dt
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from deltalake import write_deltalake
from rich.console import Console
from typer.testing import CliRunner

from deltaworks.cli import analyst, context, show
from deltaworks.errors import QueryError
from tests.small_lake import build_lake, dated, orders

Sql = Callable[..., str]
NAME = 'Zoë "Z", twice\nand a \x1b[31mcolour'


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a project folder with a lake."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "deltaworks.toml").write_text("")
    build_lake(folder / ".deltaworks/lake")
    return folder


@pytest.fixture
def sql(project: Path, monkeypatch: pytest.MonkeyPatch) -> Sql:
    """Give a function that runs `deltaworks sql` and returns what it wrote, of a refusal why; errors are raised."""
    monkeypatch.delenv("DELTAWORKS_DATA", raising=False)
    context.remember(project)
    main = typer.Typer(pretty_exceptions_enable=False)
    analyst.register(main)

    def run(*arguments: str, given: str | None = None, exit_code: int = 0) -> str:
        result = CliRunner().invoke(main, list(arguments), input=given)
        if isinstance(result.exception, QueryError):
            raise result.exception
        assert result.exit_code == exit_code, result.output
        return result.stdout_bytes.decode() if exit_code == 0 else result.stderr

    return run


def on_terminal(monkeypatch: pytest.MonkeyPatch, *, width: int) -> io.StringIO:
    """Let listings be printed on a terminal without colours, of this width."""
    screen = io.StringIO()
    console = Console(file=screen, width=width, force_terminal=True, highlight=False, color_system=None)
    monkeypatch.setattr(show, "out", console)
    return screen


def test_a_table_is_aligned_and_says_what_it_is(sql: Sql) -> None:
    """Numbers to the right with all their digits, the count and the time below."""
    *table, told = sql("select * from gold.daily_orders order by day").splitlines()

    assert [line.rstrip() for line in table] == [
        "day         orders  revenue",
        "2026-11-20    2000    20.10",
        "2026-11-21    2100    21.10",
    ]
    assert re.match(r"2 rows in \d+\.\d+ s", told)


def test_nulls_times_and_control_characters_can_be_read(sql: Sql) -> None:
    """NULL is not an empty text, times are UTC without noise, a value cannot move the cursor."""
    printed = sql("select small, name, seen, '' as empty from silver.everything order by small nulls last")

    _, row, nulls, told = printed.splitlines()
    cells = [part.strip() for part in row.split("  ") if part]
    assert cells[1:3] == ['Zoë "Z", twice\\nand a \\x1b[31mcolour', "2026-11-20 12:00:00.250"]
    assert nulls.split() == ["NULL", "NULL", "NULL"]
    assert told.endswith(", times are UTC")


def test_wide_text_is_folded_on_a_terminal_only(sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets whole lines, a terminal gets none that is longer than it is wide."""
    query = "select 1234567890 as id, repeat('word ', 20) as text"
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(show, "out", show.unfolded(Console(highlight=False)))
    piped = sql(query)
    screen = on_terminal(monkeypatch, width=40)
    sql(query)

    assert "word " * 19 in piped
    assert max(len(line) for line in screen.getvalue().splitlines()) <= 40
    assert screen.getvalue().count("word") == 20
    assert "1234567890" in screen.getvalue()


def test_many_columns_become_a_block_for_each_row(sql: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that do not fit beside each other stand below each other."""
    screen = on_terminal(monkeypatch, width=60)

    sql("select * from silver.everything order by small nulls last")

    printed = screen.getvalue()
    assert "row 1\n" in printed
    assert "row 2\n" in printed
    assert "price    19.90" in printed
    assert max(len(line) for line in printed.splitlines()) <= 60


def test_a_long_answer_is_cut_and_says_so(sql: Sql) -> None:
    """A table shows 1,000 rows unless told otherwise; a limit that is enough leaves no note."""
    cut = sql("from range(1001)").splitlines()
    whole = sql("from range(1001)", "--limit", "1001").splitlines()

    assert (len(cut), len(whole)) == (1002, 1003)
    assert cut[-1].startswith("first 1,000 rows in ")
    assert cut[-1].endswith("; more with --limit, all with --csv or --json")
    assert whole[-1].startswith("1,001 rows in ")


def test_json_is_a_list_of_objects_with_exact_values(sql: Sql) -> None:
    """Whole numbers are numbers, decimals strings, times ISO 8601 with a Z, nested values nested."""
    row, nulls = json.loads(sql("select * from silver.everything order by small nulls last", "--json"))

    assert row == {
        "flag": True,
        "small": -7,
        "big": 9_007_199_254_740_993,
        "ratio": 0.1,
        "price": "19.90",
        "name": NAME,
        "raw": "{\\x22a\\x22}\\x00\\xFF",
        "day": "2026-11-20",
        "seen": "2026-11-20T12:00:00.250000Z",
        "local": "2026-11-20T12:00:00.250000",
        "tags": ["a", None],
        "address": {"city": "Łódź", "since": "2020-01-01"},
        "counts": {"x": 1},
        "_source": "page_views/0/12",
    }
    assert set(nulls.values()) == {None}


def test_json_stays_json_at_its_edges(sql: Sql) -> None:
    """No rows are an empty list; what JSON has no number for is a text."""
    nothing = json.loads(sql("from gold.daily_orders where false", "--json"))
    odd = json.loads(sql("select 'nan'::double as a, '-inf'::double as b, 0::decimal(18, 8) as c", "--json"))

    assert nothing == []
    assert odd == [{"a": "nan", "b": "-inf", "c": "0.00000000"}]


def test_csv_is_read_back_as_it_was(sql: Sql) -> None:
    """RFC 4180: a header, CRLF, quotes doubled; NULL is empty and an empty text is quoted."""
    written = sql("select name, price, seen, '' as empty from silver.everything order by small nulls last", "--csv")

    assert list(csv.reader(io.StringIO(written, newline=""))) == [
        ["name", "price", "seen", "empty"],
        [NAME, "19.90", "2026-11-20T12:00:00.250000Z", ""],
        ["", "", "", ""],
    ]
    assert written.endswith('\r\n,,,""\r\n')


@pytest.mark.parametrize(("option", "lines"), [("--json", 2002), ("--csv", 2001)])
def test_programs_get_all_rows_unless_they_ask_for_fewer(sql: Sql, option: str, lines: int) -> None:
    """The limit of a table is for eyes; an export is whole."""
    whole = sql("from range(2000)", option).splitlines()
    few = sql("from range(2000)", option, "--limit", "3").splitlines()

    assert len(whole) == lines
    assert len(few) == lines - 1997


def test_a_query_may_come_from_stdin(sql: Sql) -> None:
    """A dash reads the query, so that a file of SQL can be run."""
    assert sql("-", "--csv", given="select 1 as one\n") == "one\r\n1\r\n"


def test_a_plan_is_printed_as_it_is(sql: Sql) -> None:
    """EXPLAIN draws boxes: they are not put into a table."""
    printed = sql("explain select * from gold.daily_orders")

    assert "DELTA_SCAN" in printed
    assert "\\n" not in printed


def test_two_formats_at_once_are_refused(sql: Sql) -> None:
    """A mistake in the options is a usage error, exit code 2."""
    refused = sql("select 1", "--json", "--csv", exit_code=2)

    assert "--json and --csv exclude each other" in refused


def test_the_limits_are_options(sql: Sql) -> None:
    """Time and memory are limits of the call."""
    with pytest.raises(QueryError, match=r"stopped after 0\.2 s"):
        sql("select sum(a.range * b.range) from range(100000000) a, range(100000000) b", "--timeout", "0.2")
    with pytest.raises(QueryError, match="needs more memory"):
        sql("select list(range) from range(100000000)", "--memory", "64MB")


@pytest.fixture(scope="module")
def dated_project(project: Path) -> Path:
    """Give the project with gold.dated_orders, which got a day at midnight and one at noon."""
    table = project / ".deltaworks/lake/gold/dated_orders"
    write_deltalake(table, orders(20))
    write_deltalake(table, orders(21), mode="append")
    dated(table, *(dt.datetime(2026, 1, 2, hour, tzinfo=dt.UTC) for hour in (0, 12)))
    return project


@pytest.mark.parametrize(
    ("as_of", "days"),
    [
        ("2026-01-02", [20]),
        ("2026-01-02T11:59:59.999", [20]),
        ("2026-01-02 12:00", [20, 21]),
        ("2026-01-02T12:00:00Z", [20, 21]),
        ("2026-01-02T12:59:59+01:00", [20]),
        ("2026-01-02T13:00+01:00", [20, 21]),
    ],
)
@pytest.mark.usefixtures("dated_project")
def test_tables_are_asked_as_of_a_time(sql: Sql, as_of: str, days: list[int]) -> None:
    """A day is its midnight, a time without a zone is UTC; every form of answer tells the same."""
    query = "select day(day) as day from gold.dated_orders order by 1"

    as_json = json.loads(sql(query, "--as-of", as_of, "--json"))
    as_csv = sql(query, "--as-of", as_of, "--csv").split()
    *shown, told = sql(query, "--as-of", as_of).splitlines()

    assert [row["day"] for row in as_json] == days
    assert as_csv == ["day", *map(str, days)]
    assert [line.split() for line in shown] == [["day"], *([str(day)] for day in days)]
    assert told.startswith(f"{len(days)} row")


@pytest.mark.usefixtures("dated_project")
def test_a_time_that_cannot_be_asked_is_one_line(sql: Sql) -> None:
    """What is no time is wrong usage; one that is to come or long past names the table and what to ask instead."""
    query = "select * from gold.dated_orders"

    refused = sql(query, "--as-of", "yesterday", exit_code=2)

    assert "'yesterday' is no day or time" in refused
    with pytest.raises(QueryError, match=r"gold\.dated_orders: cannot be asked as of 2999-.* that is to come"):
        sql(query, "--as-of", "2999-01-01", "--json")
    with pytest.raises(
        QueryError, match=r"gold\.dated_orders: .* it was made later.* as of 2026-01-02T00:00:00\.000Z or"
    ):
        sql(query, "--as-of", "2026-01-01", "--json")
