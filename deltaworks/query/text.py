"""Texts in SQL."""


def literal(text: str) -> str:
    """A text as SQL says it."""
    return "'" + text.replace("'", "''") + "'"
