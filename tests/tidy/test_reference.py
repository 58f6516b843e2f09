"""The reference names every setting, command and error, and none that is not there."""

import inspect
import re
from collections.abc import Iterator

import pytest
import typer
from msgspec import Struct, structs

from deltaworks import errors
from deltaworks.cli.main import main
from deltaworks.settings import AppSettings, ProcessSettings, Settings, SourceSettings, TopicSettings
from tests.tidy.repository import ROOT

_MODELS: tuple[type[Struct], ...] = (Settings, AppSettings, TopicSettings, SourceSettings, ProcessSettings)
_SECTION = re.compile(r"^## (?P<name>.+?)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def _fields(model: type[Struct]) -> set[str]:
    return {field.encode_name for field in structs.fields(model)}


def _commands(app: typer.Typer, prefix: str = "") -> Iterator[str]:
    for command in app.registered_commands:
        assert command.callback is not None
        yield prefix + (command.name or command.callback.__name__)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from _commands(group.typer_instance, f"{prefix}{group.name} ")


THERE = {
    "Settings": {name for one in _MODELS for name in _fields(one)},
    "Commands": set(_commands(main)),
    "Errors": {
        name
        for name, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, errors.DeltaworksError) and one is not errors.DeltaworksError
    },
}


@pytest.mark.parametrize("section", THERE)
def test_reference_is_complete_and_true(section: str) -> None:
    """The first column of a section's tables names what is there, and nothing else."""
    text = (ROOT / "docs" / "reference.md").read_text()
    body = next(match["text"] for match in _SECTION.finditer(text) if match["name"] == section)
    first = [line.split("|")[1] for line in body.splitlines() if line.startswith("| `")]
    shown = {name for cell in first for name in re.findall(r"`([^`]+)`", cell)}

    assert THERE[section]
    assert shown == THERE[section]
