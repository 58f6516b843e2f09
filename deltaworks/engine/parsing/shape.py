"""Which fields a record has, judged once per set of names: producers send the same few shapes over and over."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

SHAPES_MAX = 1_000  # a hostile producer can invent shapes without end,
FIELDS_MAX = 1_000  # and large ones: those are judged anew each time


@dataclass(frozen=True)
class Verdict:
    """What a set of names means: why it is refused if it is, the undeclared ones, those that go by an older name."""

    reason: str | None
    strays: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    """(older name, declared name)."""

    @property
    def plain(self) -> bool:
        """Whether the record can be taken as it is."""
        return not self.strays and not self.renamed


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """The declared names, and what other names mean.

    `required` must be there. `strays`: whether undeclared fields are allowed. `folded`: whether a field that differs
    from a declared one only by case is refused even if the declared one is there too (a database may have both).
    `previously`: older names of declared ones, which count where the declared one is not there.
    """

    names: tuple[str, ...]
    required: tuple[str, ...]
    strays: bool = True
    folded: bool = True
    previously: Mapping[str, str] = field(default_factory=dict)
    _judged: dict[tuple[str, ...], Verdict] = field(default_factory=dict, repr=False, compare=False)

    def reason(self, fields: Iterable[str]) -> str | None:
        """Why a record with these fields is refused, None if it is not; names declared columns only."""
        return self.verdict(fields).reason

    def verdict(self, fields: Iterable[str]) -> Verdict:
        """What a record with these fields is."""
        shape = tuple(fields)
        try:
            return self._judged[shape]
        except KeyError:
            verdict = self._judge(shape)
        if len(self._judged) >= SHAPES_MAX:
            self._judged.clear()
        if len(shape) <= FIELDS_MAX:
            self._judged[shape] = verdict
        return verdict

    def _judge(self, shape: Sequence[str]) -> Verdict:
        older = [(old, name) for name, old in self.previously.items() if name not in shape and old in shape]
        there = {*shape, *(name for _, name in older)} - {old for old, _ in older}
        strays = [name for name in shape if name in there and name not in self.names]
        return Verdict(self._reason(there, strays), tuple(strays), tuple(older))

    def _reason(self, there: set[str], strays: Sequence[str]) -> str | None:
        folded = {name.casefold() for name in strays}
        for name in self.names:
            if name.casefold() in folded and (self.folded or name not in there):
                return f"{name}: differs only by case"
        if strays and not self.strays:
            return "undeclared field"
        return next((f"{name}: missing" for name in self.required if name not in there), None)
