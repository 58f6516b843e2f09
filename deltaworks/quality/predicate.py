"""The SQL of `only=`: a condition on the columns of a row, read into plain values that travel to Spark's workers.

A small part of SQL, in which Arrow and Spark give the same verdict on every row: comparisons of a column with a value
or with another column, `in`, `between`, `like`, `is null`, and `and`, `or`, `not` between them. What is neither true
nor false (a comparison with null) stays so, as in SQL. No functions and no arithmetic: what has to be computed first is
computed by a table above.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from typing import Literal

from deltaworks.errors import DeclarationError
from deltaworks.findings import nearest
from deltaworks.quality.pattern import Pattern
from deltaworks.quality.rule import Check, Equal, Greater, Match, Null, OneOf, Range, Value
from deltaworks.words.table import Column
from deltaworks.words.types import Type, parse


@dataclass(frozen=True, kw_only=True)
class Not:
    """True where the part is false."""

    part: "Predicate"


@dataclass(frozen=True, kw_only=True)
class Joined:
    """True where all parts are, or any of them is."""

    how: Literal["all", "any"]
    parts: tuple["Predicate", ...]


Predicate = Check | Not | Joined


@dataclass(frozen=True)
class _Token:
    """`kind`: name, number, text, mark or end; a word of SQL is a name, `quoted` if it can only be a column's."""

    kind: str
    text: str
    quoted: bool = False

    @property
    def word(self) -> str:
        """As a word of SQL, which has no case; empty if it is none."""
        return self.text.lower() if self.kind == "name" and not self.quoted else ""


@dataclass(frozen=True)
class _Literal:
    kind: Literal["number", "text", "date", "timestamp", "boolean"]
    text: str


_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<text>'(?:[^'\\]|'')*')
    |`(?P<quoted>[^`]+)`
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark><=>|<=|>=|<>|!=|==|[=<>(),+\-*/%|&.]))""",
    re.VERBOSE,
)
_COMPARED = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_RESERVED = frozenset({"and", "or", "not", "in", "is", "null", "like", "between", "true", "false"})
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    rf"{_DATE.pattern}([T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?(Z|[+-][0-9]{{2}}:[0-9]{{2}})?)?"
)
_WHOLE = {"int": 2**31, "bigint": 2**63}
_EXAMPLES = {
    "boolean": "true or false",
    "int": "a whole number",
    "bigint": "a whole number",
    "double": "a number",
    "string": "text in single quotes",
    "date": "date '2026-11-21'",
    "timestamp": "timestamp '2026-11-21T10:00:00Z'",
}
_KNOWN = "Known are = <> < <= > >=, in, between, like, is null, and, or, not"


def read(text: str, columns: Sequence[Column]) -> Predicate:
    """A condition over these columns; raises DeclarationError, with the nearest name, if it is none."""
    types = {column.name: parse(column.type) for column in columns}
    return _Reader(text, types).whole()


def _wrong(finding: str, next_step: str) -> DeclarationError:
    return DeclarationError("only", finding, next_step)


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            left = text[at:].lstrip()
            if left[0] == '"':
                raise _wrong("\" is no quote of Spark's SQL for names", "Write text in 'single quotes', columns bare")
            if left[0] == "'":
                finding = f"{left} is no text: it does not end, or has a backslash"
                raise _wrong(finding, "Write 'text', and '' for a quote in it")
            raise _wrong(f"{left[0]} is no sign of a condition", _KNOWN)
        kind, at = match.lastgroup, match.end()
        found.append(_Token("name" if kind == "quoted" else kind, match[kind], quoted=kind == "quoted"))
    return [*found, _Token("end", "the end")]


class _Reader:
    """Reads a condition from left to right."""

    def __init__(self, text: str, types: Mapping[str, Type]) -> None:
        self.tokens, self.types, self.at = _tokens(text), types, 0

    def whole(self) -> Predicate:
        if self._now.kind == "end":
            raise _wrong("the condition is empty", 'Write one, as in only="amount > 100", or leave only out')
        if any(token.word == "select" for token in self.tokens):
            raise _wrong("there is a query within the condition", "A row is judged alone: join in a table above")
        found = self._any()
        if self._now.kind != "end":
            raise self._unexpected()
        return found

    @property
    def _now(self) -> _Token:
        return self.tokens[self.at]

    def _next(self) -> _Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _takes(self, *words: str) -> bool:
        """Step over these words or marks if they come next."""
        coming = self.tokens[self.at : self.at + len(words)]
        if [token.word or token.text for token in coming if not token.quoted and token.kind != "text"] != [*words]:
            return False
        self.at += len(words)
        return True

    def _needs(self, word: str) -> None:
        if not self._takes(word):
            raise self._unexpected(f"{word} should be")

    def _unexpected(self, where: str = "the condition should go on or end") -> DeclarationError:
        token = self._now
        if token.kind == "mark" and token.text in "+-*/%|&":
            return _wrong(f"{token.text} computes", "Compare columns with values; a table above can compute")
        return _wrong(f"found {token.text} where {where}", _KNOWN)

    def _any(self) -> Predicate:
        parts = [self._all()]
        while self._takes("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Joined(how="any", parts=tuple(parts))

    def _all(self) -> Predicate:
        parts = [self._not()]
        while self._takes("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else Joined(how="all", parts=tuple(parts))

    def _not(self) -> Predicate:
        if self._takes("not"):
            return Not(part=self._not())
        if self._takes("("):
            found = self._any()
            self._needs(")")
            return found
        return self._test()

    def _test(self) -> Predicate:
        one = self._operand()
        if isinstance(one, str):
            return self._of_column(one)
        sign = self._sign()
        if sign is None:
            raise _wrong(f"{one.text} is a value and no condition", "Compare a column with it")
        other = self._operand()
        if not isinstance(other, str):
            raise _wrong(f"{one.text} and {other.text} are the same in every row", "Name a column")
        return self._compared(other, _TURNED[sign], one)

    def _of_column(self, column: str) -> Predicate:
        if (sign := self._sign()) is not None:
            return self._compared(column, sign, self._operand())
        if self._takes("is", "not", "null"):
            return Null(column=column, wanted=False)
        if self._takes("is", "null"):
            return Null(column=column, wanted=True)
        inverse = self._takes("not")
        found = self._listed(column)
        if found is None and inverse:
            raise self._unexpected("in, between or like should be")
        if found is None:
            if self.types[column].name != "boolean":
                if self._now.kind == "end" or self._now.word in ("and", "or") or self._now.text == ")":
                    raise _wrong(f"{column} is {self.types[column]} and no condition", "Compare it with a value")
                raise self._unexpected(f"{column} should be compared")
            return OneOf(column=column, values=(True,), wanted=True)
        return Not(part=found) if inverse else found

    def _listed(self, column: str) -> Predicate | None:
        if self._takes("in"):
            self._needs("(")
            values = [self._value(column)]
            while self._takes(","):
                values.append(self._value(column))
            self._needs(")")
            return OneOf(column=column, values=tuple(values), wanted=True)
        if self._takes("between"):
            self._ordered(column)
            low = self._value(column)
            self._needs("and")
            return Range(column=column, ranges=((low, self._value(column)),))
        if self._takes("like"):
            return self._like(column)
        return None

    def _sign(self) -> str | None:
        sign = _COMPARED.get(self._now.text) if self._now.kind == "mark" else None
        self.at += sign is not None
        return sign

    def _operand(self) -> str | _Literal:
        """A column's name or a value."""
        token = self._now
        if token.kind == "name" and token.word not in _RESERVED:
            if self.tokens[self.at + 1].kind == "text" and token.word in ("date", "timestamp"):
                self.at += 1
                return _Literal("date" if token.word == "date" else "timestamp", _unquoted(self._next().text))
            return self._column()
        sign = "-" if self._takes("-") else ""
        if sign or self._takes("+"):
            token = self._now
            if token.kind != "number":
                raise self._unexpected("a number should be")
        if token.kind == "number":
            return _Literal("number", sign + self._next().text)
        if token.kind == "text":
            return _Literal("text", _unquoted(self._next().text))
        if token.word in ("true", "false"):
            return _Literal("boolean", self._next().word)
        if token.word == "null":
            raise _wrong("nothing is equal to null, not even null", "Write is null or is not null")
        raise self._unexpected("a column or a value should be")

    def _column(self) -> str:
        token = self._next()
        if self._now.text == "(" and self._now.kind == "mark":
            finding = f"{token.text}(...) is a function"
            raise _wrong(finding, "Compare columns with values; a table above can compute")
        if token.text not in self.types:
            raise _wrong(f"there is no column {token.text}", nearest(token.text, self.types, "columns"))
        return token.text

    def _value(self, column: str) -> Value:
        found = self._operand()
        if isinstance(found, str):
            raise _wrong(f"{found} is a column where a value should be", "Write the comparisons out, with or")
        return _typed(found, column, self.types[column])

    def _ordered(self, column: str) -> None:
        if self.types[column].name in ("boolean", "binary"):
            raise _wrong(f"{column} is {self.types[column]}, which has no order", "Write = or <>")

    def _compared(self, column: str, sign: str, other: str | _Literal) -> Predicate:
        if sign not in ("=", "<>"):
            self._ordered(column)
        if isinstance(other, str):
            return self._columns_compared(column, sign, other)
        value = _typed(other, column, self.types[column])
        if sign in ("=", "<>"):
            same = OneOf(column=column, values=(value,), wanted=True)
            return same if sign == "=" else Not(part=same)
        ends = (None, value) if sign in ("<", "<=") else (value, None)
        return Range(column=column, ranges=(ends,), low_out=sign == ">", high_out=sign == "<")

    def _columns_compared(self, one: str, sign: str, other: str) -> Predicate:
        kinds = self.types[one], self.types[other]
        if kinds[0] != kinds[1] and not all(kind.name in _WHOLE for kind in kinds):
            raise _wrong(f"{one} is {kinds[0]}, {other} is {kinds[1]}", "Compare columns of one type")
        if sign in ("=", "<>"):
            same = Equal(columns=(one, other), ignored="none")
            return same if sign == "=" else Not(part=same)
        columns = (one, other) if sign in (">", ">=") else (other, one)
        return Greater(columns=columns, or_equal=sign in (">=", "<="), ignored="none")

    def _like(self, column: str) -> Predicate:
        if self.types[column].name != "string":
            raise _wrong(f"{column} is {self.types[column]}, no string", "Compare it with values")
        if self._now.kind != "text":
            raise self._unexpected("a pattern in single quotes should be")
        pattern = _unquoted(self._next().text)
        return Match(column=column, patterns=(_like(pattern),), wanted=True)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _like(pattern: str) -> Pattern:
    """`%` is any text, `_` one character; both also match line ends."""
    parts = {"%": "(?s:.*)", "_": "(?s:.)"}
    inner = "".join(parts.get(one) or f"\\x{{{ord(one):X}}}" for one in pattern)
    return Pattern(text=rf"\A{inner}\z")


def _typed(literal: _Literal, column: str, kind: Type) -> Value:
    """A value in the column's own type: what Spark would have to convert first is refused."""
    made: Value | None = None
    match kind.name, literal.kind:
        case "boolean", "boolean":
            made = literal.text == "true"
        case "string", "text":
            made = literal.text
        case "int" | "bigint" | "decimal", "number":
            made = _exact(literal.text, kind)
        case "double", "number":
            made = _double(literal.text)
        case "date", "text" | "date":
            made = _day(literal.text)
        case "timestamp", "text" | "date" | "timestamp":
            made = _moment(literal.text)
    if made is None:
        example = _EXAMPLES.get(kind.name, f"a number that a {kind} can hold")
        next_step = "Compare it with null only" if kind.name == "binary" else f"Write {example}"
        raise _wrong(f"{column} is {kind}, and {literal.text} is none", next_step)
    return made


def _exact(text: str, kind: Type) -> Value | None:
    """A number without an exponent, which makes it a double in SQL, if the type holds it exactly."""
    if "e" in text.lower():
        return None
    number = Decimal(text)
    if kind.name in _WHOLE:
        bound = _WHOLE[kind.name]
        return int(number) if number == int(number) and -bound <= number < bound else None
    assert kind.precision is not None and kind.scale is not None  # noqa: PT018  # a decimal has both
    with localcontext() as context:
        context.prec = 2 * kind.precision + len(text)  # enough to move the point without rounding
        whole = number.scaleb(kind.scale)
        fits = whole == whole.to_integral_value() and abs(whole) < 10**kind.precision
        return number.quantize(Decimal(1).scaleb(-kind.scale)) if fits else None


def _double(text: str) -> Value | None:
    number = float(text)
    return number + 0.0 if abs(number) != float("inf") else None  # -0.0 is 0.0: they are equal


def _day(text: str) -> Value | None:
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def _moment(text: str) -> Value | None:
    """In UTC where it says no zone, as all times here."""
    try:
        moment = datetime.fromisoformat(text) if _MOMENT.fullmatch(text) else None
        return None if moment is None else moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
