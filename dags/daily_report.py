"""A page about each day of orders, written when the day is complete: data/reports/daily_orders_<day>.html.

An example of a data engineer's own DAG: scheduled on a gold table, reads it as an analyst does.
"""

import json
import subprocess
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowSkipException
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from deltaworks.settings import ROOT, Settings
from deltaworks.supervise.assets import closed, gold
from deltaworks.supervise.launch import driver_environment

DAYS_SHOWN = 14
# deltaworks sql answers from the lake's files; this environment has no DuckDB, the analyst's has
QUERY = """
    select day, orders, paid, cancelled, revenue from gold.daily_orders
    where day > date '{day}' - interval {days} day and day <= date '{day}' order by day"""


@dag(
    schedule=gold("gold.daily_orders"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=False,
    tags=["report"],
    doc_md=__doc__,
)
def daily_report() -> None:
    """One task: several days may be complete at once, each gets its page; a page written again replaces itself."""

    @task(retries=3, retry_delay=timedelta(minutes=1))  # the lake or a busy machine may need a moment
    def write_pages(triggering_asset_events: Any = None) -> list[str]:
        settings = Settings.load()
        days = [date.fromisoformat(partition) for partition in closed(triggering_asset_events)]
        if not days:
            raise AirflowSkipException("no day is complete")
        if settings.launcher == "agent":  # as in containers, where Airflow has no lake either
            raise AirflowSkipException("there is no analyst's Python beside this Airflow: ask on the lake's host")
        return [str(write_page(settings, day)) for day in days]

    write_pages()


def write_page(settings: Settings, day: date) -> Path:
    """Read the day and those before it, write its page in one step."""
    query = QUERY.format(day=day.isoformat(), days=DAYS_SHOWN)
    cli = [str(settings.spark_python), "-m", "deltaworks.cli", "--project", str(settings.project)]
    asked = subprocess.run(
        [*cli, "sql", query, "--json"],
        cwd=ROOT,
        env=driver_environment(settings),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if asked.returncode:
        raise RuntimeError(f"deltaworks sql: {asked.stderr.strip()}")
    path = settings.data / "reports" / f"daily_orders_{day}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(page(day, json.loads(asked.stdout)), encoding="utf-8")
    return fresh.replace(path)


def page(day: date, rows: list[dict[str, Any]]) -> str:
    """Render the page of a day from rows of gold.daily_orders; the last row is the day's, if it had any orders."""
    known = {str(row["day"])[:10]: row for row in rows}
    shown = [day - timedelta(days=back) for back in reversed(range(DAYS_SHOWN))]
    none = {"orders": 0, "paid": 0, "cancelled": 0, "revenue": 0}
    days = [{**none, **known.get(str(one), {}), "day": one} for one in shown]
    for one in days:
        one["revenue"] = Decimal(str(one["revenue"]))
    top = max(one["revenue"] for one in days) or Decimal(1)
    for one in days:
        one["height"] = float(one["revenue"] / top)
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return templates.get_template("daily_report.html").render(today=days[-1], before=days[-2], days=days)


daily_report()
