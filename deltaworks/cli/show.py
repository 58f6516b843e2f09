"""How listings look: a table for people, JSON for programs."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
_STYLES = {
    "ok": "green", "ready": "green", "running": "green", "healthy": "green", "yes": "green", "done": "green",
    "idle": "green", "stopped": "dim", "starting": "yellow", "behind": "yellow", "warn": "yellow", "queued": "yellow",
    "draining": "yellow", "failed": "red", "fail": "red", "dead": "red", "finding": "red", "no": "red", "RED": "red",
}  # fmt: skip
# a word alone, or with what it is about: "RED: 3 rows", "behind 3 batches"; not one that begins a sentence
_VERDICT = re.compile(r"([\w-]+)(?=$|: | \d)")


def listing(rows: Sequence[Mapping[str, object]], *, title: str, as_json: bool, empty: str = "nothing yet") -> None:
    """Print rows that share their keys; numbers to the right, verdicts in colour."""
    if as_json:
        # print, not Rich: a program reads this, so no wrapping and no colour
        print(json.dumps(list(rows), default=_plain, indent=2))  # noqa: T201  # the listing is the output
        return
    if not rows:
        out.print(f"{title}: {empty}")
        return
    grid = Grid(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    for place, name in enumerate(rows[0]):
        numeric = all(_is_number(row[name]) or row[name] is None for row in rows)
        # names and numbers stay whole however narrow the terminal; headers and texts may fold
        whole = max(len(_cell(row[name])) for row in rows) if numeric or place == 0 else None
        grid.add_column(
            name.replace("_", " "), justify="right" if numeric else "left", overflow="fold", min_width=whole
        )
    for row in rows:
        grid.add_row(*(_cell(value) for value in row.values()))
    out.print(grid)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    text = str(value).replace("[", "\\[")
    word = _VERDICT.match(text)
    return f"[{_STYLES[word[1]]}]{text}[/]" if word and word[1] in _STYLES else text


def _plain(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)
