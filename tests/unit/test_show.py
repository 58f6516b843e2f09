"""Listings for people."""

from io import StringIO

import pytest
from rich.console import Console

from deltaworks.cli import show


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("ok", "green"),
        ("RED: silver.orders has 3 rows, 2 were read", "red"),
        ("behind 3 batches", "yellow"),
        ("behind 12 offsets", "yellow"),
        ("failed", "red"),
    ],
)
def test_verdict_is_coloured_by_its_first_word(text: str, style: str) -> None:
    """What matters is seen at a glance, also with its reason."""
    assert show._cell(text) == f"[{style}]{text}[/]"


@pytest.mark.parametrize("text", ["no driver runs", "done by Airflow", "not ok", "RED-faced", "gold.daily_orders", ""])
def test_sentence_that_begins_with_such_a_word_is_no_verdict(text: str) -> None:
    """Colour means something only where it is rare."""
    assert show._cell(text) == text


def test_a_narrow_terminal_shows_every_word_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers of numbers fold, sentences fold between words, names and numbers stay whole."""
    written = StringIO()
    monkeypatch.setattr(show, "out", Console(file=written, width=80))
    ways = {"superseded": 1_234, "refused": 7, "duplicate": 41, "not_mine": 2_430}
    row = {"table": "gold.page_views_per_minute", "verdict": "RED: 3 rows refused, 4 set aside", "read": 12_571, **ways}

    show.listing([row], title="Tables", as_json=False)

    words = written.getvalue().split()
    assert {"gold.page_views_per_minute", "refused,", "12,571", "1,234", "2,430"} <= {*words}
    assert max(map(len, written.getvalue().splitlines())) <= 80
