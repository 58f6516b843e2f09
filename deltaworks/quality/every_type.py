"""Every expectation type of Great Expectations: where and when it is judged, or why `table check` refuses it."""

from collections.abc import Iterator
from dataclasses import dataclass

from deltaworks.expectation_types import TYPES
from deltaworks.quality.compiling import judges_rows, settled_by_the_declaration
from deltaworks.quality.on_spark import OF_TYPES, not_on_spark


@dataclass(frozen=True, kw_only=True)
class Judging:
    """Of one type: whether rows are judged as they come, whether the whole table is at rest; else why neither."""

    type: str
    each_row: bool
    at_rest: bool
    note: str


def every_type() -> Iterator[Judging]:
    """All of them, by name."""
    for kind in TYPES:
        refused = not_on_spark(kind)
        if refused is not None:
            finding, next_step = refused
            yield Judging(type=kind, each_row=False, at_rest=False, note=f"{finding}. {next_step}")
        elif settled_by_the_declaration(kind):
            yield Judging(type=kind, each_row=False, at_rest=True, note="holds by the declaration, or is refused")
        else:
            types = f"of {', '.join(sorted(OF_TYPES[kind]))}" if kind in OF_TYPES else ""
            yield Judging(type=kind, each_row=judges_rows(kind), at_rest=True, note=types)


def page() -> str:
    """The same as Markdown."""
    rows = [
        f"| `{one.type}` | {'yes' if one.each_row else ''} | {'yes' if one.at_rest else 'refused'} | {one.note} |"
        for one in every_type()
    ]
    return "\n".join([_HEAD, *rows, ""])


_HEAD = """# Expectations

Written by `python -m tests.expectations_page`. One test compares this page with the code that judges, another has Great
Expectations judge every type that is not refused here.

*Each row*: in the stream, unless the expectation has `mostly` below 1 or a `row_condition`; of computed tables also
unless it says `when`. *At rest*: the whole table, each night and after a day closes, or a day's rows ([what must
hold](how-to/quality.md)). *Refused*: by `table check`, as nothing could judge it. *Of*: columns of these types; of
others it is refused.

| type | each row | at rest | |
| --- | --- | --- | --- |"""
