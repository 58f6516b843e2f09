"""Listings for people."""

import os
from errno import ENOTTY
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
        ("behind a transaction, open for 310 s: 11 offsets wait", "yellow"),
        ("suspended: DIVIDE_BY_ZERO; behind 3 versions of silver.orders", "red"),
        ("failed", "red"),
        ("source: reads public.goods, which the source does not have", "red"),
    ],
)
def test_verdict_is_coloured_by_its_first_word(text: str, style: str) -> None:
    """What matters is seen at a glance, also with its reason."""
    assert show._cell(text) == f"[{style}]{text}[/]"


@pytest.mark.parametrize(
    "text", ["no driver runs", "done by Airflow", "not ok", "RED-faced", "gold.daily_orders", "source", "source 2", ""]
)
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


def test_headers_fold_within_words_only_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a text does not need goes to them, to those first that need least."""
    row = {"table": "t" * 30, "verdict": "ok", "superseded": 12, "refused": 1, "not_mine": 2, "duplicate": 3}

    assert headers(row, width=90, monkeypatch=monkeypatch) == "table verdict superseded refused not mine duplicate"
    assert headers(row, width=75, monkeypatch=monkeypatch) == "not table verdict superseded refused mine duplicate"
    assert headers(row, width=70, monkeypatch=monkeypatch) == "super not table verdict seded refused mine duplicate"


def test_what_does_not_fit_is_shown_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal folds the lines: that is hard to read, and better than columns that nobody knows of."""
    written = StringIO()
    monkeypatch.setattr(show, "out", Console(file=written, width=40))
    numbers = {f"number_{place}": place * 1_000 for place in range(12)}

    show.listing([{"table": "gold.page_views_per_minute", "why": "", **numbers}], title="Tables", as_json=False)

    words = written.getvalue().split()
    assert {f"{number:,}" for number in numbers.values()} <= {*words}
    assert "gold.page_views_per_minute" in words
    assert "why" in words
    assert words.count("numbe") + words.count("number") == len(numbers)  # folded as where there is just room


def test_texts_share_what_is_left_by_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that needs little takes no more, and the other has the rest."""
    row = {"table": "t" * 20, "verdict": "ok", "finding": "one two three four five six seven eight", "rows": 12}
    written = StringIO()
    monkeypatch.setattr(show, "out", Console(file=written, width=75))

    show.listing([row, row], title="Tables", as_json=False)

    assert "one two three four five six seven eight" in written.getvalue()


def headers(row: dict[str, object], *, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The words above a table, as they are read."""
    written = StringIO()
    monkeypatch.setattr(show, "out", Console(file=written, width=width))
    show.listing([row], title="Tables", as_json=False)
    _, *lines, _ = written.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize(("columns", "folded"), [(None, False), ("60", True)])
def test_nothing_is_folded_in_a_pipe_that_has_no_width(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, *, folded: bool
) -> None:
    """Who looks for a table's verdict by its name finds it in that line; COLUMNS says that there is less room."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    written = StringIO()
    monkeypatch.setattr(os, "get_terminal_size", no_terminal)
    monkeypatch.setattr(show, "out", show.unfolded(Console(file=written, highlight=False)))
    verdict = "behind 12 of what it reads: " + " a word" * 12
    row = {"table": "gold.page_views_per_minute", "rows": 12, "verdict": verdict}

    show.listing([row, {**row, "verdict": "ok"}], title="Tables", as_json=False)
    show.out.print("words " * 40)

    lines = written.getvalue().splitlines()
    assert any("page_views_per_minute" in line and line.endswith(verdict) for line in lines) is not folded
    assert any(line.startswith("words") and line.count("words") == 40 for line in lines) is not folded
    assert not folded or max(map(len, lines)) <= 60
    assert [line for line in lines if line != line.rstrip() and "words" not in line] == []


def no_terminal(*_: int) -> os.terminal_size:
    """What a process without one is told."""
    raise OSError(ENOTTY, "no terminal")
