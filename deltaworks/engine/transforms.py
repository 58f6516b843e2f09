"""Load a table's transform.py by path and call it with DataFrames named after its inputs."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from pyspark.sql import DataFrame

from deltaworks.catalog import Declared
from deltaworks.errors import DeclarationError

Function = Callable[..., DataFrame]
_DIGEST = "__digest__"
KeysFrom = Callable[..., DataFrame | tuple[DataFrame, ...]]


def load_transform(declared: Declared) -> Function:
    """The table's `transform`; raises DeclarationError when there is none."""
    return _function(declared, "transform")


def load_keys_from(declared: Declared) -> KeysFrom:
    """The view's `keys_from`; raises DeclarationError when there is none. See `several`."""
    return _function(declared, "keys_from")


def by_short_name(frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Inputs under the names that transforms use: silver.page_views is `page_views`."""
    return {name.split(".", 1)[1]: frame for name, frame in frames.items()}


def several(given: DataFrame | tuple[DataFrame, ...]) -> tuple[DataFrame, ...]:
    """What a view's `keys_from` gives: keys, or values of some key columns, or several of these."""
    return given if isinstance(given, tuple) else (given,)


def _function(declared: Declared, name: str) -> Function:
    if declared.transform is None:
        raise DeclarationError(declared.name, "has no transform.py", 'Run "deltaworks table check"')
    found = getattr(_module(declared.transform, declared.name), name, None)
    if not callable(found):
        raise DeclarationError(f"{declared.transform}", f"has no function {name}", 'Run "deltaworks table check"')
    return found  # type: ignore[no-any-return]  # checked by `table check --deep`


def _module(path: Path, name: str) -> ModuleType:
    """Loaded from the text that is there now: a compiled one may be that of a second ago."""
    text = path.read_bytes()
    module = ModuleType(f"deltaworks_transform_{name.replace('.', '_')}")
    module.__file__ = str(path)
    vars(module)[_DIGEST] = hashlib.sha256(text).hexdigest()[:12]
    exec(compile(text, str(path), "exec"), vars(module))  # noqa: S102  # the project's own code, as an import runs it
    return module


def digest_of(function: Callable[..., object]) -> str:
    """Short hash of the text that a function of a transform.py was loaded from."""
    return str(getattr(function, "__globals__", {}).get(_DIGEST, ""))
