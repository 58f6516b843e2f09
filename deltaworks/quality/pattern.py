r"""Java's regular expressions as RE2's: Great Expectations on Spark asks Java, the stream asks Arrow, which has RE2.

Only what means the same in both, or can be written so that it does, is translated; the rest is refused with a reason.
Java's rules are those of `java.util.regex.Pattern` without flags, of `Matcher.find`: `.` leaves out five line ends,
`\s` has the vertical tab, letters and digits of classes are ASCII, and `$` also stands before a last line end.
RE2 needs time in proportion to the text, whatever the pattern: no event can hold up the stream.
"""

import re
from dataclasses import dataclass

REPEAT_MAX = 1_000  # RE2's own bound, also of repetitions within repetitions multiplied
LINE_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])\z"
"""RE2: the last line end of a text, which Java's `$` may leave over."""

_NEVER = r"[^\x{0}-\x{10FFFF}]"
Span = tuple[int, int]
_LAST = 0x10FFFF
_LINE_ENDS: list[Span] = [(0x0A, 0x0A), (0x0D, 0x0D), (0x85, 0x85), (0x2028, 0x2029)]
_CLASSES: dict[str, list[Span]] = {
    "d": [(0x30, 0x39)],
    "w": [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
    "s": [(0x09, 0x0D), (0x20, 0x20)],
}
_CONTROLS = {"t": 0x09, "n": 0x0A, "r": 0x0D, "f": 0x0C, "a": 0x07, "e": 0x1B}
_BOUNDS = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_FLAGS = re.compile(r"\(\?([is]+)\)")
_META = "\\^$.|?*+()[]{}"
_TO_OTHER_CASE = ord("a") - ord("A")


class NotPortableError(ValueError):
    """The pattern has something that Java and RE2 read differently."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    r"""A pattern in RE2's words, but for `\Z`, which stands for Java's `$`: the end, or before a last line end."""

    text: str

    @property
    def whole(self) -> str:
        """RE2's pattern for a text as it is."""
        return self.text.replace(r"\Z", r"\z")

    @property
    def without_line_end(self) -> str | None:
        """RE2's pattern for a text whose last line end was cut off: only `$` stands there. None if there is none."""
        return self.text.replace(r"\z", _NEVER).replace(r"\Z", r"\z") if r"\Z" in self.text else None


def translate(java: str) -> Pattern:
    """The same pattern for RE2; raises NotPortableError with the reason."""
    return _Reader(java).whole()


def any_of(javas: list[str]) -> Pattern:
    """A text fits if it fits one of them; raises NotPortableError for flags, which reach into the patterns after it."""
    if len(javas) > 1 and any(_FLAGS.match(java) for java in javas):
        raise NotPortableError("flags such as (?i) in a list reach into the patterns after it")
    made = [translate(java) for java in javas]
    return Pattern(text="|".join(one.text for one in made))


class _Reader:
    """Reads a pattern from left to right and writes RE2's."""

    def __init__(self, java: str) -> None:
        self.java, self.at = java, 0
        self.any_case = self.dot_all = False

    def whole(self) -> Pattern:
        flags = _FLAGS.match(self.java)
        if flags:
            self.any_case, self.dot_all = "i" in flags[1], "s" in flags[1]
            self.at = flags.end()
        made, _, _ = self._alternatives()
        if self.at < len(self.java):
            raise NotPortableError(") without (")
        return Pattern(text=made)

    def _next(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.java[at] if at < len(self.java) else ""

    def _alternatives(self) -> tuple[str, bool, int]:
        """Up to ) or the end: RE2's text, whether a branch ends in $, the repetitions within it multiplied."""
        branches, closed, most = [], False, 1
        while True:
            branch, ended, repeats = self._sequence()
            branches.append(branch)
            closed, most = closed or ended, max(most, repeats)
            if self._next() != "|":
                return "|".join(branches), closed, most
            self.at += 1

    def _sequence(self) -> tuple[str, bool, int]:
        parts, closed, most = [], False, 1
        while self._next() not in ("", "|", ")"):
            if closed:
                raise NotPortableError("$ with something after it")
            part, closed, anchor, repeats = self._atom()
            part, times = self._repeated(part, anchor=anchor or closed)
            parts.append(part)
            most = max(most, times * repeats)
            if most > REPEAT_MAX:
                raise NotPortableError(f"more than {REPEAT_MAX} repetitions")
        return "".join(parts), closed, most

    def _atom(self) -> tuple[str, bool, bool, int]:
        """One thing that can be repeated: RE2's text, whether $ ends it, whether it is an anchor, its repetitions."""
        one = self._next()
        self.at += 1
        match one:
            case "^":
                return r"\A", False, True, 1
            case "$":
                return r"\Z", True, True, 1
            case ".":
                return _written([(0, _LAST)] if self.dot_all else _others(_LINE_ENDS)), False, False, 1
            case "(":
                return self._group()
            case "[":
                return _written(self._class()), False, False, 1
            case "\\":
                return self._escaped()
            case "*" | "+" | "?" | "{":
                raise NotPortableError(f"{one} with nothing to repeat")
        return _written(self._cased([(ord(one), ord(one))])), False, False, 1

    def _group(self) -> tuple[str, bool, bool, int]:
        if self._next() == "?":
            if self._next(1) != ":":
                raise NotPortableError(
                    f"({self.java[self.at : self.at + 3]}...: looking around, names and flags in groups"
                )
            self.at += 2
        inner, closed, repeats = self._alternatives()
        if self._next() != ")":
            raise NotPortableError("( without )")
        self.at += 1
        return f"(?:{inner})", closed, False, repeats

    def _escaped(self) -> tuple[str, bool, bool, int]:
        one = self._next()
        if one == "A":
            self.at += 1
            return r"\A", False, True, 1
        if one == "z":
            self.at += 1
            return r"\z", False, True, 1
        spans, _ = self._escape()
        return _written(spans), False, False, 1

    def _escape(self) -> tuple[list[Span], bool]:
        r"""What follows a backslash, in a class or outside: its characters, and whether it is a class such as \d."""
        one = self._next()
        self.at += 1
        if one and one.lower() in _CLASSES:
            spans = _CLASSES[one.lower()]
            return (_others(spans) if one.isupper() else spans), True
        if one in _CONTROLS:
            return [(_CONTROLS[one], _CONTROLS[one])], False
        if one and one in "xu":
            digits = self.java[self.at : self.at + (2 if one == "x" else 4)]
            if not re.fullmatch(r"[0-9a-fA-F]{2}|(?![dD][89a-fA-F])[0-9a-fA-F]{4}", digits):
                raise NotPortableError(f"\\{one}{digits}")
            self.at += len(digits)
            return self._cased([(int(digits, 16), int(digits, 16))]), False
        if not one or one.isalnum() or ord(one) > 0x7F:  # ASCII ends there
            raise NotPortableError(f"\\{one}")
        return [(ord(one), ord(one))], False

    def _class(self) -> list[Span]:
        inverse = self._next() == "^"
        self.at += inverse
        spans: list[Span] = []
        if self._next() == "]":
            raise NotPortableError("] first in a class (write \\])")
        while self._next() != "]":
            low, is_class = self._member()
            if not (self._next() == "-" and self._next(1) not in ("]", "")):
                spans += low
                continue
            self.at += 1
            high, is_class_too = self._member()
            if is_class or is_class_too:
                raise NotPortableError("- beside a class such as \\w (write it last)")
            first, last = low[0][0], high[0][0]
            if first > last:
                raise NotPortableError("a range from high to low")
            spans += self._cased([(first, last)])
        self.at += 1
        spans = self._cased(spans)
        return _others(spans) if inverse else spans

    def _member(self) -> tuple[list[Span], bool]:
        one = self._next()
        self.at += 1
        if one == "":
            raise NotPortableError("[ without ]")
        if one == "[" or (one == "&" and self._next() == "&"):
            raise NotPortableError(f"{one} within a class (write \\{one})")
        if one == "\\":
            return self._escape()
        return [(ord(one), ord(one))], False

    def _cased(self, spans: list[Span]) -> list[Span]:
        """With (?i): the other case of ASCII letters too, as Java has it."""
        if not self.any_case:
            return spans
        both = list(spans)
        for first, last in spans:
            for low, high, other in ((0x41, 0x5A, _TO_OTHER_CASE), (0x61, 0x7A, -_TO_OTHER_CASE)):
                if first <= high and last >= low:
                    both.append((max(first, low) + other, min(last, high) + other))
        return both

    def _repeated(self, part: str, *, anchor: bool) -> tuple[str, int]:
        """The part with its quantifier, and how often it may come at most (where that is counted)."""
        one, times, mark = self._next(), 1, ""
        if one and one in "*+?":
            mark = one
            self.at += 1
        elif one == "{":
            bounds = _BOUNDS.match(self.java, self.at)
            if bounds is None:
                raise NotPortableError("{ with no number (write \\{)")
            least, most = int(bounds[1]), int(bounds[3]) if bounds[3] else int(bounds[1])
            if most < least:
                raise NotPortableError(f"{bounds[0]}: more at least than at most")
            mark, times = bounds[0], max(most, 1)
            self.at = bounds.end()
        if not mark:
            return part, 1
        if anchor:
            raise NotPortableError("an anchor that is repeated")
        if self._next() == "?":  # as few as possible: the same texts fit
            self.at += 1
        if self._next() and self._next() in "*+?{":
            raise NotPortableError(f"{mark}{self._next()}")
        return f"{part}{mark}", times


def _others(spans: list[Span]) -> list[Span]:
    """All characters but these."""
    left, begin = [], 0
    for first, last in sorted(spans):
        if first > begin:
            left.append((begin, first - 1))
        begin = max(begin, last + 1)
    if begin <= _LAST:
        left.append((begin, _LAST))
    return left


def _written(spans: list[Span]) -> str:
    if not spans:
        return _NEVER
    if len(spans) == 1 and spans[0][0] == spans[0][1]:
        return _character(spans[0][0])
    return f"[{''.join(f'{_character(first)}-{_character(last)}' for first, last in spans)}]"


def _character(code: int) -> str:
    one = chr(code)
    return one if one.isascii() and one.isalnum() else f"\\x{{{code:X}}}"
