"""Which fields a record has, judged once per set of names: producers send the same few shapes over and over."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SHAPES_MAX = 1_000  # a hostile producer can invent shapes without end,
FIELDS_MAX = 1_000  # and large ones: those are judged anew each time


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """The declared names, and what other names mean.

    `required` must be there. `strays`: whether undeclared fields are allowed. `folded`: whether a field that differs
    from a declared one only by case is refused even if the declared one is there too (a database may have both).
    """

    names: tuple[str, ...]
    required: tuple[str, ...]
    strays: bool = True
    folded: bool = True
    _judged: dict[tuple[str, ...], str | None] = field(default_factory=dict, repr=False, compare=False)

    def reason(self, fields: Iterable[str]) -> str | None:
        """Why a record with these fields is refused, None if it is not; names declared columns only."""
        shape = tuple(fields)
        try:
            return self._judged[shape]
        except KeyError:
            reason = self._judge(shape)
        if len(self._judged) >= SHAPES_MAX:
            self._judged.clear()
        if len(shape) <= FIELDS_MAX:
            self._judged[shape] = reason
        return reason

    def _judge(self, shape: Sequence[str]) -> str | None:
        strays = [name for name in shape if name not in self.names]
        folded = {name.casefold() for name in strays}
        for name in self.names:
            if name.casefold() in folded and (self.folded or name not in shape):
                return f"{name}: differs only by case"
        if strays and not self.strays:
            return "undeclared field"
        return next((f"{name}: missing" for name in self.required if name not in shape), None)
