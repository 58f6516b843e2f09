"""The commands that the documentation shows in blocks of their own."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from deltaworks.cli.main import main
from deltaworks.settings import ROOT

_PROGRAM = "bin/deltaworks "
_BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_REMARK = re.compile(r"\s{3,}|\s+#")
"""What a line says about its command stands some blanks away from it."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A command of `deltaworks`: where it stands, and its words."""

    place: str
    words: tuple[str, ...]


def shown() -> Iterator[Shown]:
    """All of them, in the order of files and lines."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = path.read_text()
        for block in _BLOCK.finditer(text):
            first = text.count("\n", 0, block.start(1)) + 1
            for line, command in _commands(block[1]):
                if command.startswith(_PROGRAM):
                    place = f"{path.relative_to(ROOT)}:{first + line}"
                    yield Shown(place=place, words=tuple(shlex.split(command)[1:]))


def _commands(block: str) -> Iterator[tuple[int, str]]:
    """Lines of a block, those that belong to one command together, without remarks; and which line each begins at."""
    command, begins = "", 0
    for number, line in enumerate(block.splitlines()):
        begins = begins if command else number
        command += line.removesuffix("\\") + ("" if line.endswith("\\") else "\n")
        if command.startswith(_PROGRAM) and (line.endswith("\\") or command.count('"') % 2):
            continue
        yield begins, command if '"' in command else _REMARK.split(command)[0]
        command = ""


def understood(words: tuple[str, ...]) -> dict[str, Any]:
    """The options and arguments that the command line takes these words for; raises where it takes them for none."""
    command: Any = typer.main.get_command(main)
    context: Any = None
    name: str | None = "deltaworks"
    left = list(words)
    while True:
        context = command.make_context(name, left, parent=context)
        if not isinstance(command, TyperGroup):
            return dict(context.params)
        name, command, left = command.resolve_command(context, [*context._protected_args, *context.args])
