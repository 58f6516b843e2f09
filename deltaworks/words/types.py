"""The types a column can have, by Spark's names. One spelling each, so that texts can be compared."""

import dataclasses
import difflib
import re

from deltaworks.errors import DeclarationError

PLAIN = ("boolean", "int", "bigint", "double", "string", "binary", "date", "timestamp")
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_PRECISION_MAX = 38  # Spark's and Delta's bound
_MEANT = {
    "bool": "boolean",
    "integer": "int",
    "long": "bigint",
    "float": "double",
    "text": "string",
    "varchar": "string",
    "bytes": "binary",
    "datetime": "timestamp",
    "timestamptz": "timestamp",
    "timestamp_ntz": "timestamp",
    "numeric": "decimal(p,s)",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Type:
    """A parsed type: `decimal` has precision and scale, the others have none."""

    name: str
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        """Spark's name of the type, as declared."""
        return self.name if self.precision is None else f"{self.name}({self.precision},{self.scale})"

    @property
    def adds_exactly(self) -> bool:
        """Whether sums do not depend on their order, and one that does not fit is noticed: integers and decimals.

        Of decimals those below the longest: the sum of two needs a digit more to be seen as too large.
        """
        return self.name in ("int", "bigint") or (self.precision or _PRECISION_MAX) < _PRECISION_MAX


def parse(text: str) -> Type:
    """Read a type's name; raises DeclarationError with the nearest known one."""
    if text in PLAIN:
        return Type(name=text)
    decimal = _DECIMAL.fullmatch(text)
    if decimal is None:
        raise DeclarationError(f"type {text!r}", "there is no such type", f"Write {_nearest(text)}")
    precision, scale = int(decimal[1]), int(decimal[2])
    if not 1 <= precision <= _PRECISION_MAX or scale > precision:
        raise DeclarationError(
            f"type {text!r}", "this decimal cannot be", f"Precision is 1 to {_PRECISION_MAX}, scale at most precision"
        )
    return Type(name="decimal", precision=precision, scale=scale)


def _nearest(text: str) -> str:
    plain = re.sub(r"\s", "", text.lower())
    if plain in PLAIN or _DECIMAL.fullmatch(plain):
        return plain
    base = plain.split("(", 1)[0]
    if base in _MEANT:
        return _MEANT[base]
    near = difflib.get_close_matches(base, [*PLAIN, "decimal"], n=1)
    if not near:
        return f"one of {', '.join(PLAIN)}, decimal(p,s)"
    return "decimal(p,s), as in decimal(12,2)" if near[0] == "decimal" else near[0]
