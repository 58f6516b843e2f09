"""Whether a word's fields hold what their annotations say: Python itself does not look."""

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

_SHOWN = {str: "text", int: "a whole number", bool: "True or False", timedelta: "a duration, as in minutes(10)"}


def misfits(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Fields of a word, at any depth, that hold the wrong kind of value: (field, what is wrong)."""
    hints = typing.get_type_hints(type(value))
    for field in dataclasses.fields(value):
        path = f"{place}.{field.name}" if place else field.name
        held, hint = getattr(value, field.name), hints[field.name]
        if not _fits(held, hint):
            yield path, f"holds {_show(held)}, wanted {_wanted(hint)}"
        elif isinstance(held, tuple):
            for item in held:
                if dataclasses.is_dataclass(item):
                    yield from misfits(item, path)
        elif dataclasses.is_dataclass(held):
            yield from misfits(held, path)


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, arguments[0]) and _fits(held, arguments[1]) for key, held in value.items()
        )
    if hint is int and isinstance(value, bool):
        return False
    return isinstance(value, type(None) if hint is None else hint)


def _wanted(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_wanted(one) for one in arguments if one is not type(None))
    if origin is typing.Literal:
        return " or ".join(repr(one) for one in arguments)
    if origin is tuple:
        kind = arguments[0]
        return 'a tuple of text, as in ("a",)' if kind is str else f"a tuple of {kind.__name__}"
    if origin is Mapping:
        return f"a mapping of {_wanted(arguments[0])} to {_wanted(arguments[1])}"
    return _SHOWN.get(hint) or f"{hint.__name__.lower()}(...)"


def _show(value: Any) -> str:
    if dataclasses.is_dataclass(value) or callable(value):
        return f"{getattr(value, '__name__', type(value).__name__).lower()}(...)"
    return repr(value)
