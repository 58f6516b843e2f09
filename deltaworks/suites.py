"""Suites: what must hold for the rows of a table, in Great Expectations' own keys.

A file is `expectations: [{type, kwargs, severity, meta}]` (and `name`, the table's, if wanted), or `waived: why`.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from deltaworks import documents
from deltaworks.errors import DeclarationError
from deltaworks.expectation_types import COMMON, TYPES
from deltaworks.findings import Finding, nearest

Severity = Literal["critical", "warning"]

_SUITE_KEYS = ("name", "expectations", "waived")
_KEYS = ("type", "kwargs", "severity", "meta")
_SEVERITIES = ("critical", "warning")
_ONE_COLUMN, _MANY_COLUMNS = ("column", "column_A", "column_B"), ("column_list", "column_set")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expectation:
    """One expectation: something follows where it is critical and not met (`quality.planning` says what)."""

    type: str
    kwargs: Mapping[str, Any]
    severity: Severity
    meta: Mapping[str, Any]
    line: int = 0
    """Where it begins in its file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """The expectations of a table; `waived` says why there are none."""

    name: str
    expectations: tuple[Expectation, ...]
    waived: str | None


def load(path: Path, *, table: str, columns: Sequence[str]) -> Suite:
    """Read the suite of a table; raises DeclarationError with the first finding."""
    shown = shown_path(table)
    document = documents.read(path, shown)
    for finding in judge(document, table=table, columns=columns):
        raise finding.error()
    expectations = tuple(
        Expectation(
            type=one["type"],
            kwargs=MappingProxyType(dict(one.get("kwargs", {}))),
            severity=one["severity"],
            meta=MappingProxyType(dict(one.get("meta", {}))),
            line=one.line,
        )
        for one in document.get("expectations", [])
    )
    return Suite(name=table, expectations=expectations, waived=document.get("waived"))


def save(path: Path, expectations: Sequence[Expectation], *, table: str, columns: Sequence[str]) -> None:
    """Write the suite of a table, in one step; comments at its beginning stay.

    Raises DeclarationError with the first finding, and writes nothing then.
    """
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    kept = list(takewhile(lambda line: line.startswith("#"), before.splitlines()))
    lines = [*kept, "expectations:"]
    for one in expectations:
        lines += [f"  - type: {one.type}", f"    kwargs: {documents.written(dict(one.kwargs))}"]
        lines.append(f"    severity: {one.severity}")
        if one.meta:
            lines.append(f"    meta: {documents.written(dict(one.meta))}")
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text("\n".join([*lines, ""]), encoding="utf-8")
    try:
        load(fresh, table=table, columns=columns)
    except DeclarationError:
        fresh.unlink()
        raise
    fresh.replace(path)


def findings(path: Path, *, table: str, columns: Sequence[str]) -> list[Finding]:
    """Everything that is wrong with a suite's file."""
    try:
        return list(judge(documents.read(path, shown_path(table)), table=table, columns=columns))
    except DeclarationError as error:
        return [Finding(place=error.place, finding=error.finding, next_step=error.next_step)]


def shown_path(table: str) -> str:
    """Path of a table's suite, relative to the project."""
    return f"expectations/{table.replace('.', '/', 1)}.yml"


def judge(document: Any, *, table: str, columns: Sequence[str]) -> Iterator[Finding]:
    """Everything that is wrong with a suite."""
    shown = shown_path(table)
    if not isinstance(document, documents.Mapping):
        next_step = "Write expectations: [...], or waived: with the reason"
        yield Finding(place=shown, finding="a suite is a mapping", next_step=next_step)
        return
    unknown = [key for key in document if key not in _SUITE_KEYS]
    for key in unknown:
        yield Finding(place=shown, finding=f"unknown key {key}", next_step=nearest(key, _SUITE_KEYS, "keys"))
    if document.get("name", table) != table:
        next_step = f"Write {table}, or leave it out: the path is the name"
        yield Finding(place=shown, finding=f"name is {document['name']!r}", next_step=next_step)
    if not unknown:
        yield from _waived_or_not(document, shown)
    expectations = document.get("expectations", [])
    if not isinstance(expectations, list):
        yield Finding(place=shown, finding="expectations is no list", next_step="Write - type: ... for each")
        return
    for one in expectations:
        yield from _expectation(one, shown, columns)


def _waived_or_not(document: Mapping[str, Any], shown: str) -> Iterator[Finding]:
    waived, expectations = document.get("waived"), document.get("expectations")
    if "waived" in document and not (isinstance(waived, str) and waived.strip()):
        next_step = "Write why, as in waived: raw copy; checked in silver"
        yield Finding(place=shown, finding="waived without a reason", next_step=next_step)
    elif waived and expectations:
        yield Finding(place=shown, finding="waived, yet there are expectations", next_step="Keep one of them")
    elif not waived and not expectations:
        next_step = "Write some, or waived: with the reason"
        yield Finding(place=shown, finding="there are no expectations", next_step=next_step)


def _expectation(one: Any, shown: str, columns: Sequence[str]) -> Iterator[Finding]:
    if not isinstance(one, documents.Mapping):
        next_step = "Write {type: ..., kwargs: {...}, severity: critical}"
        yield Finding(place=shown, finding=f"{one!r} is no expectation", next_step=next_step)
        return
    place, kind, kwargs = f"{shown}:{one.line}", one.get("type"), one.get("kwargs", {})
    for key in one:
        if key not in _KEYS:
            yield Finding(place=place, finding=f"unknown key {key}", next_step=nearest(key, _KEYS, "keys"))
    if one.get("severity") not in _SEVERITIES:
        finding = f"severity {one['severity']!r} is unknown" if "severity" in one else "there is no severity"
        next_step = "Write critical (something follows) or warning (it is counted)"
        yield Finding(place=place, finding=finding, next_step=next_step)
    for key, value in (("kwargs", kwargs), ("meta", one.get("meta", {}))):
        if not isinstance(value, dict):
            yield Finding(place=place, finding=f"{key} is no mapping", next_step=f"Write {key}: {{...}}")
    if not isinstance(kind, str) or kind not in TYPES:
        finding = f"there is no expectation {kind}" if kind else "there is no type"
        next_step = (
            nearest(str(kind), TYPES, "expectations") if kind else f"Write type: {next(iter(TYPES))}, or another"
        )
        yield Finding(place=place, finding=finding, next_step=next_step)
    elif isinstance(kwargs, dict):
        yield from _arguments(kind, kwargs, place)
    if isinstance(kwargs, dict):
        yield from _unknown_columns(kwargs, place, columns)


def _arguments(kind: str, kwargs: Mapping[str, Any], place: str) -> Iterator[Finding]:
    required, optional = (words.split() for words in TYPES[kind])
    for name in kwargs:
        if name not in (*required, *optional, *COMMON):
            next_step = nearest(name, [*required, *optional], "arguments")
            yield Finding(place=place, finding=f"{kind} has no argument {name}", next_step=next_step)
    for name in required:
        if name not in kwargs:
            yield Finding(place=place, finding=f"{kind} lacks {name}", next_step=f"Give {name} in kwargs")


def _unknown_columns(kwargs: Mapping[str, Any], place: str, columns: Sequence[str]) -> Iterator[Finding]:
    named = [kwargs[key] for key in _ONE_COLUMN if key in kwargs]
    for key in _MANY_COLUMNS:
        listed = kwargs.get(key, [])
        named += listed if isinstance(listed, list) else [listed]
    for name in named:
        if name not in columns:
            finding, next_step = f"there is no column {name}", nearest(str(name), columns, "columns")
            yield Finding(place=place, finding=finding, next_step=next_step)
