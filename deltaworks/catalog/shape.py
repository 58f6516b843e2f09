"""Whether a word's fields hold what their annotations say: Python itself does not look."""

import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

_SHOWN = {str: "text", int: "a whole number", bool: "True or False", timedelta: "a duration, as in minutes(10)"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Misfit:
    """A field that holds the wrong kind of value."""

    field: str
    held: str
    wanted: str


def misfits(value: Any, place: str = "") -> Iterator[Misfit]:
    """Fields of a word, at any depth, that hold the wrong kind of value."""
    hints = typing.get_type_hints(type(value))
    for field in dataclasses.fields(value):
        path = f"{place}.{field.name}" if place else field.name
        held, hint = getattr(value, field.name), hints[field.name]
        if isinstance(held, Mapping) and typing.get_origin(hint) is Mapping:
            yield from _misfits_in(held, typing.get_args(hint)[1], path)
        elif not _fits(held, hint):
            yield Misfit(field=path, held=_show(held), wanted=_wanted(hint))
        elif isinstance(held, tuple):
            for item in held:
                if dataclasses.is_dataclass(item):
                    yield from misfits(item, path)
        elif dataclasses.is_dataclass(held):
            yield from misfits(held, path)


def _misfits_in(held: Mapping[Any, Any], hint: Any, path: str) -> Iterator[Misfit]:
    for key, value in held.items():
        if not isinstance(key, str):
            yield Misfit(field=path, held=f"the key {key!r}", wanted="names of columns")
        elif not _fits(value, hint):
            yield Misfit(field=f"{path}[{key!r}]", held=_show(value), wanted=_wanted(hint))


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if hint is int and isinstance(value, bool):
        return False
    return isinstance(value, type(None) if hint is None else hint)


def _wanted(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_wanted(one) for one in arguments if one is not type(None))
    if origin is typing.Literal:
        return " or ".join(map(str, arguments))
    if origin is tuple:
        kind = arguments[0]
        return 'a tuple of text, as in ("a",)' if kind is str else f"a tuple of {kind.__name__}"
    if origin is Mapping:
        return "a mapping"
    return _SHOWN.get(hint) or f"{_word(hint)}(...)"


def _show(value: Any) -> str:
    if dataclasses.is_dataclass(value) or callable(value):
        return f"{_word(value if hasattr(value, '__name__') else type(value))}(...)"
    return repr(value)


def _word(kind: Any) -> str:
    """The function that makes a value of this class: `day_of` for DayOf."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
