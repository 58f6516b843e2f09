import importlib.util
import re
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from deltaworks.settings import ROOT, Settings

DAY = date(2026, 11, 20)


@pytest.fixture
def report(settings: Settings) -> Any:
    """Give the DAG file as a module; nothing imports dags/, so by path. It reads the settings."""
    assert settings.project.is_dir()
    spec = importlib.util.spec_from_file_location("daily_report_under_test", ROOT / "dags" / "daily_report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(count: int, **last: object) -> list[dict[str, Any]]:
    """As `deltaworks sql --json` gives them: days and decimals are text."""
    made: list[dict[str, Any]] = [
        {"day": str(DAY - timedelta(days=back)), "orders": 100 + back, "paid": 80, "cancelled": 3, "revenue": "4000.50"}
        for back in reversed(range(count))
    ]
    made[-1] |= last
    return made


def test_the_page_shows_the_day_and_the_change_to_the_day_before(report: Any) -> None:
    """Numbers of the day, signed differences, one bar per day."""
    page = report.page(DAY, rows(14, revenue="5000.75", orders=1234))

    assert "Friday, 20 November 2026" in page
    assert "5,000.75" in page
    assert "1,234" in page
    assert "+1,000.25 vs. day before" in page
    assert page.count("<rect ") == report.DAYS_SHOWN


def test_the_chart_is_in_scale(report: Any) -> None:
    """The highest bar is the day with the highest revenue, the others in proportion."""
    page = report.page(DAY, rows(14, revenue=str(Decimal("8001.00"))))

    chart = ET.fromstring(re.findall(r"<svg.*?</svg>", page, re.DOTALL)[0])  # noqa: S314  # our own page
    heights = [float(bar.get("height") or 0) for bar in chart.iter("rect")]
    assert heights[-1] == 160
    assert heights[:-1] == [80.0] * 13


def test_days_without_orders_are_shown_as_nothing(report: Any) -> None:
    """A new shop has a page on its first day, and a quiet day has one too."""
    new, quiet = report.page(DAY, rows(1)), report.page(DAY, [])

    assert new.count("<rect ") == report.DAYS_SHOWN
    assert "0.00" in quiet


def test_values_are_escaped_and_nothing_is_fetched(report: Any) -> None:
    """The page stands alone, and a value cannot become markup."""
    page = report.page(DAY, rows(14))

    assert "<script" not in page
    assert not re.search(r"(src|href)=|https?://|@import|url\(", page)
    environment = report.Environment(autoescape=True)
    assert environment.from_string("{{ x }}").render(x="<b>") == "&lt;b&gt;"


def test_a_failed_question_fails_the_task_with_its_reason(report: Any, settings: Settings) -> None:
    """The stand-in is no analyst's Python: whatever the question says on stderr is the reason."""
    (settings.data / "manners").write_text("crashes")

    with pytest.raises(RuntimeError, match="deltaworks sql"):
        report.write_page(settings, DAY)

    assert not (settings.data / "reports").exists()
