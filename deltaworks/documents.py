"""YAML as our files use it: what looks like text is text, keys are unique, mappings know their line.

YAML 1.1 would make the country NO false, 10:30 a number and a date an object; here only true, false, null and decimal
numbers are not text.
"""

import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from deltaworks.errors import DeclarationError

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times as fast, where it was built


class Mapping(dict[str, Any]):
    """A mapping that knows the line where it begins."""

    line: int = 0


class _Dumper(yaml.SafeDumper):
    """Quotes what the loader would not take for text, and nothing else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write what is there twice twice."""
        del data
        return True


_Dumper.yaml_implicit_resolvers = {}  # not those of its base


class _Loader(_Base):  # type: ignore[misc]  # its base is chosen above
    """Safe, and narrower: its resolvers are those below only."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _tag, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"-?(?:0|[1-9][0-9]*)", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
):
    for _one in (_Loader, _Dumper):
        _one.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def _mapping(loader: Any, node: yaml.MappingNode) -> Mapping:
    made = Mapping()
    made.line = node.start_mark.line + 1
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str) or key in made:
            what = "is there twice" if isinstance(key, str) else "is not text"
            raise yaml.MarkedYAMLError(problem=f"key {key!r} {what}", problem_mark=key_node.start_mark)
        made[key] = loader.construct_object(value_node, deep=True)
    return made


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def written(value: Any) -> str:
    """A value in one line, as `read` reads it."""
    return str(yaml.dump(value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=10**9)).strip()


def read(path: Path, shown: str) -> Any:
    """The document of a file; raises DeclarationError with its line. `shown` is the path for messages."""
    try:
        with path.open("rb") as file:
            return yaml.load(file, Loader=_Loader)  # noqa: S506  # the loader is a safe one, only narrower
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{shown}:{mark.line + 1}" if mark else shown
        raise DeclarationError(place, f"not YAML: {error.problem}", "Mend the line") from None
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        finding = f"cannot be read ({str(error).splitlines()[0]})"
        raise DeclarationError(shown, finding, "Mend the file") from None
