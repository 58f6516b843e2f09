"""SQL expressions made by chance, of a kind, over columns of known kinds. But for `risky`, none of them raises."""

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random

Columns = Mapping[str, str]
"""Names, each with the kind of its values."""
Make = Callable[["Expressions"], str]
SQL_TYPES = {
    "long": "bigint",
    "edge": "bigint",
    "text": "string",
    "flag": "boolean",
    "double": "double",
    "decimal": "decimal(18,2)",
    "wide": "decimal(38,10)",
    "binary": "binary",
    "date": "date",
    "time": "timestamp",
    "moment": "timestamp",
    "list": "array<bigint>",
    "divisor": "int",
    "number": "string",
    "near": "bigint",
    "index": "int",
    "pairs": "array<struct<key:string,value:int>>",
}
GROUPED = ("long", "text", "flag", "double", "decimal", "date", "time", "binary", "list", "edge")
"""Kinds that rows are grouped and joined by."""


_KIND = re.compile(r"\{(\w+)\}")


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return "`" + name.replace("`", "``") + "`"


class Expressions:
    """Makes them, by chance, over some columns."""

    def __init__(self, chance: Random, columns: Columns) -> None:
        """Over these."""
        self.chance, self.columns, self._depth = chance, columns, 0

    def column(self, kind: str) -> str | None:
        """One of the columns of a kind, None where there is none."""
        names = [name for name, one in self.columns.items() if one == kind]
        return quoted(self.chance.choice(names)) if names else None

    def make(self, kind: str) -> str:
        """An expression of this kind."""
        there = self.column(kind)
        if self._depth >= 2 or (there is not None and self.chance.random() < 0.35):  # deeper ones say no more
            return there or f"cast(null as {SQL_TYPES[kind]})"
        self._depth += 1
        try:
            return self.chance.choice(MADE.get(kind, (_same(kind),)))(self)
        finally:
            self._depth -= 1


def _same(kind: str) -> Make:
    return lambda e: e.column(kind) or f"cast(null as {SQL_TYPES[kind]})"


def _of(template: str) -> Make:
    """An expression with others in it: {kind}, where two of a kind are two expressions."""
    return lambda e: _KIND.sub(lambda found: e.make(found[1]), template)


def _all(*templates: str) -> Sequence[Make]:
    return [_of(template) for template in templates]


MADE: Mapping[str, Sequence[Make]] = {
    "long": _all(
        "({long} % 100 + {long} % 7)", "length({text})", "cast({flag} as bigint)", "abs({long} % 50)",
        "case when {flag} then {long} when {flag} then 7 else {long} end", "coalesce({long}, {long}, -1)",
        "size({list})", "datediff({date}, date'2024-01-01')", "year({date})", "crc32({binary})",
        "aggregate({list}, 0L, (s, x) -> s + coalesce(x, 0L) % 5)", "nullif({long}, {long})",
        "greatest({long}, {long})", "least({long}, 3)", "hash({text}, {long})", "xxhash64({date}, {text}) % 1000",
        "cast(try_divide({long}, {long}) as bigint)", "bit_count({long})", "ascii({text})", "instr({text}, 'a')",
        "minute({time})", "array_position({list}, 1)", "levenshtein({text}, {text})", "{long} & 12",
        "try_element_at({list}, 2)", "map(1L, {long}, 2L, {long})[2L]", "unix_date({date})", "dayofweek({date})",
        "struct({text} as t, {long} as n).n", "try_cast({text} as bigint)", "pmod({long}, 5)", "hour({time})",
        "array_max({list})", "{edge} % 1000", "floor({decimal} % 100)",
    ),
    "double": _all(
        "{double} + 0.5d", "{long} / 4", "nanvl({double}, 0d)", "{double} * -1d", "round({double}, 1)",
        "if({flag}, {double}, double('NaN'))", "sqrt(abs({double}))", "cast({decimal} as double)",
        "coalesce({double}, -0d)", "try_divide({double}, {double})", "signum({double})", "float({double})",
    ),
    "decimal": _all(
        "cast({decimal} as decimal(20,3))", "round({decimal}, 1)", "cast({long} % 1000 as decimal(20,4))",
        "-({decimal})", "if({flag}, {decimal}, 0.10)", "try_divide({decimal}, {decimal})",
        "try_add({decimal}, {decimal})", "try_multiply({decimal}, {decimal})", "coalesce({decimal}, 1.5)",
        "bround({decimal}, 0)", "ceil({decimal}, 1)",
    ),
    "text": _all(
        "concat({text}, '-', {text})", "upper({text})", "lower({text})", "trim({text})", "substring({text}, 2, 3)",
        "reverse({text})", "cast({long} as string)", "cast({date} as string)", "cast({time} as string)",
        "cast({double} as string)", "hex({binary})", "concat_ws('|', {text}, {text})", "date_format({time}, 'HH:mm')",
        "regexp_replace({text}, '[aeiou]', '*')", "lpad({text}, 4, '_')", "translate({text}, 'ab', 'b')",
        "to_json(struct({text} as a, {long} as b, {decimal} as c))", "md5({binary})", "coalesce({text}, 'none')",
        "case {long} when 1 then 'one' when 2 then {text} end", "cast({decimal} as string)", "split({text}, 'a')[0]",
        "regexp_extract({text}, '(\\\\w+)', 1)", "initcap({text})", "elt(2, {text}, {text})", "base64({binary})",
        "from_json({text}, 'a int').a", "cast(map({long} % 1, {text}) as string)", "array_join(array({text}), ',')",
        "get_json_object('{\"a\": 1}', '$.a')", "decode(encode({text}, 'utf-8'), 'utf-8')", "cast({wide} as string)",
        "named_struct('t', {text}, 'n', {long}).t", "cast({moment} as string)", "if({flag}, {text}, null)",
        "cast({pairs} as string)", "format_number({long}, 2)", "typeof({decimal})", "soundex({text})",
    ),
    "flag": _all(
        "{long} < {long}", "{text} = {text}", "{double} > 0.5d", "{text} is null", "{text} like '%a%'",
        "{text} rlike '^[a-z]'", "({flag} and {flag})", "({flag} or {flag})", "not {flag}", "{long} in (1, 2, null)",
        "{long} between 1 and {long}", "{text} <=> {text}", "exists({list}, x -> x > 1)",
        "array_contains({list}, 1)", "isnan({double})", "{decimal} >= {decimal}", "{date} > date'2024-01-01'",
        "{double} = {double}", "startswith({text}, 'a')", "forall({list}, x -> x > 0)", "{binary} = {binary}",
        "{time} < {time}", "{list} = {list}", "arrays_overlap({list}, {list})", "coalesce({flag}, false)",
    ),
    "date": _all(
        "date_add({date}, cast({long} % 30 as int))", "trunc({date}, 'MM')", "last_day({date})", "to_date({time})",
        "coalesce({date}, date'2024-05-05')", "add_months({date}, 1)", "next_day({date}, 'MO')",
        "to_date(to_timestamp({time}))", "{date} + interval 1 month",
    ),
    "time": _all(
        "{time} + interval 5 minutes", "date_trunc('minute', {time})", "cast({date} as timestamp)",
        "to_utc_timestamp({time}, 'Asia/Tokyo')", "from_utc_timestamp({time}, 'Europe/Berlin')",
        "coalesce({time}, timestamp'2024-03-31 00:30:00')", "greatest({time}, {time})", "{time} - interval 1 hour",
        "timestamp_micros(unix_micros({time}))", "make_timestamp(2024, 3, 31, 2, 30, 0, 'Europe/Berlin')",
    ),
    "list": _all(
        "array({long}, {long})", "filter({list}, x -> x > 1)", "transform({list}, x -> x % 10 + 1)",
        "array_distinct({list})", "sort_array({list})", "slice({list}, 1, 2)", "array_union({list}, {list})",
        "flatten(array({list}, {list}))", "sequence(1L, 3L)", "array_except({list}, {list})",
        "coalesce({list}, array(0L))", "array_sort({list})", "map_values(map('a', {long}))", "reverse({list})",
        "transform(zip_with({list}, {list}, (x, y) -> x), x -> x)", "array_append({list}, {long})",
        "array_intersect({list}, {list})", "array_repeat({long}, 2)",
        "map_keys(map_filter(map(1L, {long}), (k, v) -> v > 1))",
    ),
    "binary": _all(
        "encode({text}, 'utf-8')", "unhex(hex({binary}))", "coalesce({binary}, x'00ff')", "concat({binary}, x'01')",
    ),
}  # fmt: skip
RISKY: Sequence[tuple[str, str, str]] = (
    # the column that decides, an expression, its kind
    ("divisor", "100 div {}", "long"),
    ("divisor", "7 % {}", "long"),
    ("divisor", "1.5 / {}", "decimal"),
    ("divisor", "0.5d / {}", "double"),
    ("divisor", "if({} = 0, raise_error('no'), 1L)", "long"),
    ("divisor", "if(assert_true({} <> 0) is null, 1L, 2L)", "long"),
    ("divisor", "make_date(2024, {}, 1)", "date"),
    ("divisor", "map(0, 'x', {}, 'y')[0]", "text"),
    ("divisor", "sequence(1L, 3L, cast({} as bigint))", "list"),
    ("divisor", "mod(5, {}) + pmod(7, {})", "long"),
    ("divisor", "make_timestamp(2024, {}, 1, 0, 0, 0)", "time"),
    ("divisor", "aggregate(array(1L, 2L), 0L, (s, x) -> s + x div {})", "long"),
    ("divisor", "elt({}, 'a', 'b', 'c')", "text"),
    ("number", "cast({} as int)", "long"),
    ("number", "cast({} as double)", "double"),
    ("number", "cast({} as decimal(10,2))", "decimal"),
    ("number", "element_at(transform(array({}), x -> cast(x as bigint)), 1)", "long"),
    ("number", "if({} = 'x', cast({} as date), date'2024-01-01')", "date"),
    ("number", "if({} = 'x', to_timestamp({}, 'yyyy'), null)", "time"),
    ("number", "if({} = 'x', cast({} as boolean), true)", "flag"),
    ("number", "to_number(if({} = 'x', {}, '12'), '99')", "decimal"),
    ("near", "{} + 9223372036854775000L", "long"),
    ("near", "{} * 3", "long"),
    ("near", "cast({} as int)", "long"),
    ("near", "timestamp_seconds({})", "time"),
    ("near", "abs(-{} - 2)", "long"),
    ("near", "date_add(date'2024-01-01', cast({} as int))", "date"),
    ("index", "array(1L, 2L, 3L)[{} - 1]", "long"),
    ("index", "element_at(array('a', 'b', 'c'), {})", "text"),
    ("index", "conv(cast({} as string), 10, 16)", "text"),
    ("wide", "{} * cast(100000000000 as decimal(38,10))", "wide"),
    ("wide", "cast({} as decimal(20,2))", "decimal"),
    ("wide", "{} + cast('9999999999999999999999999999' as decimal(38,10))", "wide"),
    ("wide", "cast({} as bigint)", "long"),
)
"""What raises for a bad row (tests/direct/rows.py)."""
