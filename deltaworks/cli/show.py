"""How listings look: a table for people, JSON for programs."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

_ENDLESS = 10_000_000


def unfolded(console: Console) -> Console:
    """A terminal has a width; a file or a pipe has none, so nothing is folded there, unless COLUMNS gives it one."""
    if not console.is_terminal:
        console.width = shutil.get_terminal_size((_ENDLESS, 0)).columns
    return console


out = unfolded(Console(highlight=False))
err = unfolded(Console(stderr=True, highlight=False))
_WORD_MAX = 40  # longer words fold anywhere
_HEADER_MIN = 5  # of a column of numbers, where there is little room
_GAP = 2
# a word with a colon is a verdict only before what it is about: a part is called source too
_STYLES = {
    "ok": "green", "ready": "green", "running": "green", "healthy": "green", "yes": "green", "done": "green",
    "idle": "green", "stopped": "dim", "starting": "yellow", "behind": "yellow", "warn": "yellow", "queued": "yellow",
    "draining": "yellow", "failed": "red", "fail": "red", "dead": "red", "finding": "red", "no": "red", "RED": "red",
    "suspended": "red", "source: ": "red", "stuck": "red",
}  # fmt: skip
# a word alone, or with what it is about: "RED: 3 rows", "behind 3 batches"; not one that begins a sentence
_VERDICT = re.compile(r"([\w-]+)(?=$|(: )| \d| a transaction)")


def document(value: object) -> None:
    """Print a value as JSON."""
    # print, not Rich: a program reads this, so no wrapping and no colour
    print(json.dumps(value, default=_plain, indent=2))  # noqa: T201  # the output is for programs


def listing(rows: Sequence[Mapping[str, object]], *, title: str, as_json: bool, empty: str = "nothing yet") -> None:
    """Print rows that share their keys; numbers to the right, verdicts in colour."""
    if as_json:
        document(list(rows))
        return
    if not rows:
        out.print(f"{title}: {empty}")
        return
    columns = [_Column.of(name, [row[name] for row in rows], whole=place == 0) for place, name in enumerate(rows[0])]
    tight = sum(column.widest + _GAP for column in columns) - _GAP > out.width
    rooms = _rooms(columns, out.width)
    grid = Grid(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    grid.padding = (0, 1, 0, 0) if tight else (0, 1)
    for column, room in zip(columns, rooms, strict=True):
        grid.add_column(
            column.name.replace("_", " "),
            justify="right" if column.numeric else "left",
            overflow="fold",
            min_width=room if tight else None,
            max_width=room if tight else None,
        )
    for row in rows:
        grid.add_row(*(_cell(value) for value in row.values()))
    draw(grid)


def draw(grid: Grid) -> None:
    """Print a table. What a terminal has no room for it folds itself; to others no line ends in blanks."""
    if out.is_terminal:
        out.print(grid, crop=False)
        return
    with out.capture() as drawn:
        out.print(grid, crop=False)
    out.print("\n".join(line.rstrip() for line in drawn.get().splitlines()), markup=False, soft_wrap=True)


def _rooms(columns: Sequence["_Column"], width: int) -> list[int]:
    """How wide columns are where there is little room: texts, which fold between words, share what is left.

    What they do not need keeps headers from folding within their words, as many of them as it can.
    """
    rooms = [max(column.least, min(column.header, _HEADER_MIN)) for column in columns]
    left = max(width - sum(room + 1 for room in rooms), 0)
    texts = sorted(
        (place for place, column in enumerate(columns) if not column.whole),
        key=lambda place: columns[place].widest - rooms[place],
    )
    for before, place in enumerate(texts):
        more = min(max(columns[place].widest - rooms[place], 0), left // (len(texts) - before))
        rooms[place], left = rooms[place] + more, left - more
    for place in sorted(range(len(columns)), key=lambda place: columns[place].header - rooms[place]):
        more = columns[place].header - rooms[place]
        if 0 < more <= left:
            rooms[place], left = rooms[place] + more, left - more
    return rooms


@dataclass(frozen=True, kw_only=True)
class _Column:
    """How wide a column may be, and must be."""

    name: str
    numeric: bool
    whole: bool
    widest: int
    least: int
    header: int
    """Of the longest word of its header."""

    @classmethod
    def of(cls, name: str, values: Sequence[object], *, whole: bool) -> "_Column":
        """Names (the first column) and numbers stay whole, texts keep their words."""
        numeric = all(_is_number(value) or value is None for value in values)
        cells = [Text.from_markup(_cell(value)).plain for value in values]
        parts = cells if numeric or whole else [word for cell in cells for word in cell.split() or [""]]
        return cls(
            name=name,
            numeric=numeric,
            whole=numeric or whole,
            widest=max(len(name), *map(len, cells)),
            least=min(max(map(len, parts)), _WORD_MAX),
            header=max(map(len, name.replace("_", " ").split()), default=0),
        )


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
    style = word and (_STYLES.get(word[1]) or _STYLES.get(f"{word[1]}{word[2]}"))
    return f"[{style}]{text}[/]" if style else text


def _plain(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)
