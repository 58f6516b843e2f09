"""What makes a class a word: frozen, keyword-only, and helpful about a misspelt field."""

import dataclasses
import difflib
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
def word(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, keyword-only value; an unknown field raises TypeError with the nearest right name."""
    made = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    plain_init = made.__init__
    names = [field.name for field in dataclasses.fields(made)]  # type: ignore[arg-type]  # made by the line above

    def init(self: T, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
                raise TypeError(f"{cls.__name__} has no field {name!r}: {hint}")
        plain_init(self, *args, **given)

    type.__setattr__(made, "__init__", init)
    return made
