"""Types of Postgres that Debezium sends and a column can be declared as: values, and what becomes of them."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One type of the source. `texts`: values as Postgres reads them; `shown`: SQL of what the lake has instead."""

    sql: str
    declared: str
    texts: tuple[str, ...]
    shown: str = "{}"
    wire: str | None = None
    key: bool = False
    """Whether rows can be told apart by it; then `texts` are values that differ from each other."""

    def value(self, chance: Random) -> str:
        """Any of its values."""
        return chance.choice(self.texts)


_MICROS = "(extract(epoch from {}) * 1000000)::bigint"
KINDS = (
    Kind(sql="smallint", declared="int", texts=("-32768", "-1", "0", "7", "99", "1000", "32766", "32767"), key=True),
    Kind(sql="integer", declared="int", texts=("-2147483648", "-5", "0", "1", "2", "3", "2147483647"), key=True),
    Kind(sql="bigint", declared="bigint", texts=("-9223372036854775808", "0", "9007199254740993", "12"), key=True),
    Kind(sql="text", declared="string", texts=("", "a", "null", "it's", "Łódź", "a\tb\nc", "\u2028", "😀"), key=True),
    Kind(sql="uuid", declared="string", shown="{}::text", key=True,
         texts=tuple(f"00000000-0000-4000-8000-{number:012}" for number in range(8))),
    Kind(sql="numeric(12,2)", declared="decimal(12,2)", texts=("-0.01", "0", "1.5", "9999999999.99", "12"), key=True),
    Kind(sql="date", declared="date", texts=("0001-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31"),
         key=True),
    Kind(sql="timestamptz", declared="timestamp", key=True,
         texts=("0001-01-01 00:00Z", "1969-12-31 23:59:59.999999Z", "2026-03-29 01:30:00.5+02", "9999-12-31 00:00Z")),
    Kind(sql="timestamp", declared="timestamp", shown="{} at time zone 'UTC'", key=True,
         texts=("1969-12-31 23:59:59.999999", "1970-01-01", "2026-10-25 02:30:00.123456", "2262-05-01")),
    Kind(sql="timestamp(3)", declared="timestamp", wire="millis", shown="{} at time zone 'UTC'",
         texts=("1969-12-31 23:59:59.999", "2026-10-25 02:30:00.123", "1970-01-01")),
    Kind(sql="varchar(9)", declared="string", texts=("", "abc", "Łódź"), key=False),
    Kind(sql="char(5)", declared="string", texts=("a", "abcde", "")),
    Kind(sql="boolean", declared="boolean", texts=("true", "false")),
    Kind(sql="real", declared="double", texts=("0", "1.5", "-1e30"), shown="{}::text::double precision"),
    Kind(sql="double precision", declared="double", texts=("0", "0.1", "1e300", "-1e-300", "9007199254740993")),
    Kind(sql="numeric", declared="string", shown="{}::text", texts=("1.50", "0", "1" + "0" * 50, "-0.000001")),
    Kind(sql="bytea", declared="binary", texts=(r"\x", r"\x00ff", r"\x7b7d")),
    Kind(sql="time", declared="bigint", shown=_MICROS, texts=("00:00", "23:59:59.999999", "12:30:00.5")),
    Kind(sql="json", declared="string", shown="{}::text", texts=("{}", '{"a": [1,  null]}', '"x"', "null")),
    Kind(sql="jsonb", declared="string", shown="{}::text", texts=("{}", '{"b":1,"a":[1.0,null]}', "7")),
    Kind(sql="inet", declared="string", shown="abbrev({})", texts=("10.0.0.1/32", "10.1.0.0/16", "::1/128")),
    Kind(sql="macaddr", declared="string", shown="{}::text", texts=("08:00:2b:01:02:03",)),
    Kind(sql="int4range", declared="string", shown="{}::text", texts=("[1,5)", "empty", "(,7)")),
    Kind(sql="mood", declared="string", shown="{}::text", texts=("calm", "it's", "wild")),
)  # fmt: skip
"""`mood` is an enum of our own."""
KEYS = tuple(kind for kind in KINDS if kind.key)
