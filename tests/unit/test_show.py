import pytest

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
