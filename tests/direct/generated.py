"""Transforms made by chance: a few steps over inputs, each of which says how it is written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tests.direct.expressions import GROUPED, RISKY, SQL_TYPES, Expressions, quoted
from tests.direct.rows import INPUTS, TYPES

Frames = Mapping[str, DataFrame]
HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")


@dataclass(frozen=True, kw_only=True)
class Relation:
    """Columns with their kinds, and how they are computed."""

    columns: Mapping[str, str]
    build: Callable[[Frames], DataFrame]
    told: str
    grows: bool = False
    """Whether its rows may be as many as the square of the inputs'."""
    risky: str = ""
    """The expression that raises for a bad row, where there is one."""


class Making:
    """Makes one relation."""

    def __init__(self, chance: Random) -> None:
        """By this chance."""
        self.chance, self._names, self._risk = chance, count(1), chance.random() < 0.8  # mostly

    def relation(self, steps: int) -> Relation:
        """So many steps over an input."""
        made = self._source()
        for _ in range(steps):
            made = self.chance.choice(STEPS)(self, made)
            if self._risk and self.chance.random() < 0.6:  # early, so that something stands over it
                made = _risky(self, made)
        return made

    def other(self) -> Relation:
        """What another relation is joined with: an input, as it is or after a step."""
        return self.chance.choice((_same, _project, _filter, _aggregate, _distinct))(self, self._source())

    def name(self) -> str:
        """A name that no column has yet."""
        return f"{self.chance.choice(('c', 'C d', 'é.', '`'))}{next(self._names)}"

    def over(self, made: Relation) -> Expressions:
        """Expressions over its columns."""
        return Expressions(self.chance, made.columns)

    def some(self, made: Relation, kinds: tuple[str, ...], most: int) -> list[str]:
        """One to so many of its columns of these kinds; none where there are none."""
        there = [name for name, kind in made.columns.items() if kind in kinds]
        return self.chance.sample(there, min(len(there), self.chance.randint(1, most)))

    def take_risk(self) -> bool:
        """Whether there is one to take; it is taken once."""
        risk, self._risk = self._risk, False
        return risk

    def _source(self) -> Relation:
        name = self.chance.choice(INPUTS)
        return Relation(
            columns={column: kind for column, (kind, _, _) in TYPES.items()},
            build=lambda frames: frames[name],
            told=name,
        )


Step = Callable[[Making, Relation], Relation]


def _then(
    made: Relation, columns: Mapping[str, str], build: Callable[[DataFrame], DataFrame], told: str, *,
    grows: bool = False, risky: str = "",
) -> Relation:  # fmt: skip
    return Relation(
        columns=columns, build=lambda frames: build(made.build(frames)), told=f"{made.told}\n  {told}",
        grows=made.grows or grows, risky=risky or made.risky,
    )  # fmt: skip


def _same(making: Making, made: Relation) -> Relation:
    del making
    return made


def _project(making: Making, made: Relation) -> Relation:
    """Some of the columns, and new ones."""
    over, chance = making.over(made), making.chance
    kept = [name for name in made.columns if chance.random() < 0.7]  # most
    new = {making.name(): kind for kind in chance.choices(list(GROUPED[:-1]), k=chance.randint(1, 4))}
    texts = {name: over.make(kind) for name, kind in new.items()}
    columns = {**{name: made.columns[name] for name in kept}, **new}
    listed = [*map(quoted, kept), *(f"{text} as {quoted(name)}" for name, text in texts.items())]
    return _then(made, columns, lambda frame: frame.selectExpr(*listed), f"select {', '.join(listed)}")


def _filter(making: Making, made: Relation) -> Relation:
    text = making.over(made).make("flag")
    if making.chance.random() < 0.5:  # else little is left
        text = f"coalesce({text}, true)"
    return _then(made, made.columns, lambda frame: frame.where(text), f"where {text}")


def _risky(making: Making, made: Relation) -> Relation:
    """A column that raises for a bad row; one that nobody reads is not computed, so all may read it."""
    possible = [one for one in RISKY if making.over(made).column(one[0]) is not None]
    if not possible or not making.take_risk():
        return made
    deciding, template, kind = making.chance.choice(possible)
    column = making.over(made).column(deciding)
    assert column is not None
    text, name = template.replace("{}", column), making.name()
    if making.chance.random() < 0.3:  # mostly as a column
        condition = f"coalesce(cast({text} as string), '') <> 'q'"
        return _then(made, made.columns, lambda frame: frame.where(condition), f"where {condition}", risky=text)
    listed = ["*", f"{text} as {quoted(name)}"]
    columns = {**made.columns, name: kind}
    return _then(made, columns, lambda frame: frame.selectExpr(*listed), f"select {', '.join(listed)}", risky=text)


def _join(making: Making, made: Relation) -> Relation:
    """Any kind of join with equal columns, null-safe or not, with a condition besides; or one without any."""
    chance = making.chance
    other = made if chance.random() < 0.2 else making.other()  # with itself at times
    names = {name: making.name() for name in other.columns}
    theirs = {names[name]: kind for name, kind in other.columns.items()}
    every, grows, on = {**made.columns, **theirs}, False, []
    kinds = sorted({*made.columns.values()} & {*theirs.values()} & {*GROUPED})
    how = chance.choice(HOW)
    if "key" in made.columns and "key" in other.columns:
        on.append(f"{quoted('key')} {chance.choice(('=', '=', '<=>'))} {quoted(names['key'])}")
    else:
        grows = True
    if kinds and (not on or chance.random() < 0.4):  # two of them at times
        kind = chance.choice(kinds)
        left, right = making.over(made).column(kind), Expressions(chance, theirs).column(kind)
        on.append(f"{left} {chance.choice(('=', '<=>'))} {right}")
    if not on:
        how = "cross"
    elif chance.random() < 0.4:  # a condition besides
        on.append(Expressions(chance, every).make("flag"))
    condition, hint = " and ".join(on), chance.choice(("", "", "shuffle_hash", "merge"))
    columns = made.columns if how in ("left_semi", "left_anti") else every

    def build(frames: Frames) -> DataFrame:
        right = other.build(frames).toDF(*(names[name] for name in other.columns))
        right = right.hint(hint) if hint else right
        left = made.build(frames)
        return left.crossJoin(right) if how == "cross" else left.join(right, F.expr(condition), how)

    told = f"{made.told}\n  {how} join {hint} ({other.told}) on {condition}"
    return Relation(
        columns=columns, build=build, told=told, grows=grows or made.grows or other.grows,
        risky=made.risky or other.risky,
    )  # fmt: skip


def _union(making: Making, made: Relation) -> Relation:
    """Rows of both, or of one alone, or of both alike: by sets or by bags."""
    other, chance = making.other(), making.chance
    kinds = chance.choices(GROUPED[:-1], k=chance.randint(1, 4))
    columns = {making.name(): kind for kind in kinds}
    way = chance.choice(
        ("union", "union", "union", "unionByName", "intersect", "subtract", "exceptAll", "intersectAll")
    )

    def listed(one: Relation) -> list[str]:
        over = making.over(one)
        return [f"cast({over.make(kind)} as {SQL_TYPES[kind]}) as {quoted(name)}" for name, kind in columns.items()]

    mine, theirs = listed(made), listed(other)

    def build(frames: Frames) -> DataFrame:
        left, right = made.build(frames).selectExpr(*mine), other.build(frames).selectExpr(*theirs)
        if way == "unionByName":
            right = right.select(*(F.col(quoted(name)) for name in reversed(columns)))
        both: DataFrame = getattr(left, way)(right)
        return both

    return Relation(
        columns=columns, build=build, told=f"{made.told}\n  {way} {mine} ({other.told}) {theirs}",
        grows=made.grows or other.grows, risky=made.risky or other.risky,
    )  # fmt: skip


AGGREGATES = (
    # whatever the order of rows, each gives the same; zeros of both signs are made one
    ("count(*)", "long"), ("count({text})", "long"), ("count(distinct {text}, {long})", "long"),
    ("sum({long} % 100)", "long"), ("sum({decimal})", "other"), ("avg({long} % 100)", "double"),
    ("max({long})", "long"),
    ("min({text})", "text"), ("max({time})", "time"), ("max({double} + 0d)", "double"), ("min({moment})", "moment"),
    ("sort_array(collect_list({long}))", "list"), ("sort_array(collect_set({long}))", "list"),
    ("count_if({flag})", "long"), ("bool_or({flag})", "flag"), ("every({flag})", "flag"), ("max({binary})", "binary"),
    ("max_by({same}, struct({text}, {same}))", "other"), ("array_max(collect_set({date}))", "date"),
    ("percentile({long} % 100, 0.5)", "double"), ("approx_count_distinct({text})", "long"),
    ("max(struct({long}, {text})).col2", "text"), ("bit_xor({long})", "long"), ("sum(distinct {long} % 10)", "long"),
    ("array_join(array_sort(collect_list({text})), ',')", "text"), ("median({long} % 100)", "double"),
    ("count(*) filter (where {flag})", "long"), ("sum({long} % 10) filter (where {flag})", "long"),
    ("min(if({flag}, {decimal}, null))", "decimal"), ("try_sum({wide})", "other"), ("try_avg({decimal})", "other"),
    ("listagg(distinct {text}, ',') within group (order by {text})", "skip"),
)  # fmt: skip


def _aggregates(making: Making, made: Relation) -> tuple[dict[str, str], list[str]]:
    over, columns, texts = making.over(made), dict[str, str](), list[str]()
    for template, kind in making.chance.sample([one for one in AGGREGATES if one[1] != "skip"], 3):
        text = _filled(template, over)
        name = making.name()
        columns[name] = kind
        texts.append(f"{text} as {quoted(name)}")
    return columns, texts


def _filled(template: str, over: Expressions) -> str:
    """With an expression for each gap; those called the same have the same one: of rows that tie any could be given."""
    text = template.replace("{same}", over.make("long")) if "{same}" in template else template
    for one in SQL_TYPES:
        while f"{{{one}}}" in text:
            text = text.replace(f"{{{one}}}", over.make(one), 1)
    return text


def _aggregate(making: Making, made: Relation) -> Relation:
    """Groups by columns or an expression, by sets of them, or all rows at once."""
    chance = making.chance
    keys = making.some(made, GROUPED, 3) if chance.random() < 0.9 else []  # else all at once
    columns, texts = _aggregates(making, made)
    way = chance.choice(("groupBy", "groupBy", "groupBy", "rollup", "cube")) if keys else "groupBy"
    sets = [] if way == "groupBy" else ["grouping_id() as `set`"]
    if sets and "set" in made.columns:
        way, sets = "groupBy", []

    def build(frame: DataFrame) -> DataFrame:
        grouped = getattr(frame, way)(*(F.col(quoted(name)) for name in keys))
        result: DataFrame = grouped.agg(*(F.expr(text) for text in (*texts, *sets)))
        return result

    every = {**{name: made.columns[name] for name in keys}, **columns, **({"set": "other"} if sets else {})}
    return _then(made, every, build, f"{way} {keys}: {texts}")


def _windows(making: Making, made: Relation) -> Relation:
    """Tumbling, hopping and session windows over a time."""
    chance = making.chance
    times = making.some(made, ("time",), 1)
    if not times:
        return _aggregate(making, made)
    time, key = quoted(times[0]), making.some(made, ("long", "text"), 1)
    texts = (
        "'5 minutes'",
        "'5 minutes', '1 minute'",
        "'7 minutes', '3 minutes', '30 seconds'",
        "'10 minutes', '10 minutes'",
    )
    window = chance.choice((*(f"window({time}, {text})" for text in texts), f"session_window({time}, '4 minutes')"))
    columns, aggregates = _aggregates(making, made)
    began, ended = making.name(), making.name()

    def build(frame: DataFrame) -> DataFrame:
        by = [F.expr(window).alias("w"), *(F.col(quoted(name)) for name in key)]
        grouped = frame.groupBy(*by).agg(*(F.expr(text) for text in aggregates))
        listed = [
            f"w.start as {quoted(began)}",
            f"w.end as {quoted(ended)}",
            *(quoted(name) for name in (*key, *columns)),
        ]
        return grouped.selectExpr(*listed)

    every = {began: "time", ended: "time", **{name: made.columns[name] for name in key}, **columns}
    return _then(made, every, build, f"{window} {key}: {aggregates}")


def _order(made: Relation) -> list[str]:
    """All columns: rows that are equal in them are one like the other; zeros of both signs are not."""
    listed = [quoted(name) for name, kind in made.columns.items() if kind != "other"]
    return [*listed, *(f"cast({quoted(name)} as string)" for name, kind in made.columns.items() if kind == "double")]


RANKED = (
    ("row_number()", "long"), ("rank()", "long"), ("dense_rank()", "long"), ("ntile(3)", "long"),
    ("lag({text}, 1)", "text"), ("lead({long}, 2, -1)", "long"), ("first_value({long})", "long"),
    ("last_value({text})", "text"), ("percent_rank()", "double"), ("cume_dist()", "double"),
    ("sum({long} % 100)", "long"), ("count(*)", "long"), ("max({time})", "time"), ("nth_value({text}, 2)", "text"),
    ("collect_list({long})", "list"), ("min({decimal})", "decimal"), ("lag({long}) ignore nulls", "long"),
)  # fmt: skip


def _ranked(making: Making, made: Relation) -> Relation:
    """A value from other rows: by place, before and after, running sums; then at times only the first places."""
    chance, over = making.chance, making.over(made)
    if "other" in made.columns.values():
        return _filter(making, made)
    template, kind = chance.choice(RANKED)
    text = _filled(template, over)
    by, order = making.some(made, GROUPED, 2), _order(made)
    chance.shuffle(order)
    order[0] += chance.choice((" desc", " asc nulls last", ""))
    frame_of = chance.choice(
        ("", "", "rows between 2 preceding and current row", "rows between unbounded preceding and 1 following")
    )
    if not text.startswith(("sum", "count", "max", "min", "collect", "first", "last")):
        frame_of = ""
    name = making.name()
    partition = ", ".join(quoted(one) for one in by)
    whole = f"{text} over (partition by {partition} order by {', '.join(order)} {frame_of}) as {quoted(name)}"
    columns = {**made.columns, name: kind}
    ranked = _then(made, columns, lambda frame: frame.selectExpr("*", whole), f"select *, {whole}")
    if template in ("row_number()", "rank()", "dense_rank()") and chance.random() < 0.7:  # mostly
        most = f"{quoted(name)} <= {chance.randint(1, 3)}"
        return _then(ranked, columns, lambda frame: frame.where(most), f"where {most}")
    return ranked


def _exploded(making: Making, made: Relation) -> Relation:
    lists = making.some(made, ("list",), 1)
    if not lists:
        return _project(making, made)
    name = making.name()
    way = making.chance.choice(("explode", "explode_outer"))
    kept = [quoted(one) for one in made.columns if making.chance.random() < 0.6]  # most
    listed = [*kept, f"{way}({quoted(lists[0])}) as {quoted(name)}"]
    columns = {**{one: kind for one, kind in made.columns.items() if quoted(one) in kept}, name: "long"}
    return _then(made, columns, lambda frame: frame.selectExpr(*listed), f"select {', '.join(listed)}")


def _inlined(making: Making, made: Relation) -> Relation:
    """Structs of an array as rows, or columns as rows."""
    pairs = making.some(made, ("pairs",), 1)
    first, second = making.name(), making.name()
    kept = making.some(made, GROUPED, 3)
    if pairs and making.chance.random() < 0.5:  # one or the other
        text, kinds = f"{making.chance.choice(('inline', 'inline_outer'))}({quoted(pairs[0])})", ("text", "long")
    else:
        over = making.over(made)
        values = ", ".join(f"'{at}', cast({over.make('long')} as bigint)" for at in range(3))
        text, kinds = f"stack(3, {values})", ("text", "long")
    listed = [*map(quoted, kept), f"{text} as ({quoted(first)}, {quoted(second)})"]
    columns = {**{name: made.columns[name] for name in kept}, first: kinds[0], second: kinds[1]}
    return _then(made, columns, lambda frame: frame.selectExpr(*listed), f"select {', '.join(listed)}")


def _distinct(making: Making, made: Relation) -> Relation:
    """Rows once; of some columns where not all can be compared."""
    names = making.some(made, GROUPED, 3)
    if not names:
        return made
    columns = {name: made.columns[name] for name in names}
    plain = [
        f"{quoted(name)} + 0d as {quoted(name)}" if kind == "double" else quoted(name) for name, kind in columns.items()
    ]
    if making.chance.random() < 0.5:  # one or the other
        return _then(made, columns, lambda frame: frame.selectExpr(*plain).distinct(), f"distinct {plain}")
    if _dotted(names):
        return _then(made, columns, lambda frame: frame.selectExpr(*plain), f"select {plain}")
    return _then(made, columns, lambda frame: frame.dropDuplicates(names).selectExpr(*plain), f"dropDuplicates {names}")


def _dotted(names: list[str]) -> bool:
    return any("." in name or "`" in name for name in names)


def _limit(making: Making, made: Relation) -> Relation:
    if "other" in made.columns.values():
        return _filter(making, made)
    order, many = _order(made), making.chance.choice((0, 1, 3, 40))
    skipped = making.chance.choice((0, 0, 2))

    def build(frame: DataFrame) -> DataFrame:
        first = frame.orderBy(*(F.expr(one) for one in order))
        return (first.offset(skipped) if skipped else first).limit(many)

    return _then(made, made.columns, build, f"order by all limit {many} offset {skipped}")


def _pivot(making: Making, made: Relation) -> Relation:
    """Values as columns."""
    names = making.some(made, ("long",), 2)
    if len(names) < 2:  # what stays, and what turns
        return _aggregate(making, made)
    stays, turns = names
    columns = {stays: "long", "1": "long", "2": "long"}
    return _then(
        made, columns,
        lambda frame: frame.groupBy(F.col(quoted(stays))).pivot(quoted(turns), [1, 2]).agg(F.count("*")),
        f"pivot {stays} by {turns}",
    )  # fmt: skip


def _arranged(making: Making, made: Relation) -> Relation:
    """What changes no row: parts, orders, names."""
    way = making.chance.choice(("sort", "repartition", "coalesce", "alias"))
    key = making.some(made, ("long",), 1)

    def build(frame: DataFrame) -> DataFrame:
        match way:
            case "sort":
                return frame.sortWithinPartitions(*(F.col(quoted(name)) for name in key)) if key else frame
            case "repartition":
                return frame.repartition(3, *(F.col(quoted(name)) for name in key))
            case "coalesce":
                return frame.coalesce(1)
        return frame.alias("a")

    return _then(made, made.columns, build, way)


def _over_all(making: Making, made: Relation) -> Relation:
    """Each row with what all rows of its group make together."""
    by, name = making.some(made, GROUPED, 1), making.name()
    if not by:
        return made
    window = Window.partitionBy
    return _then(
        made, {**made.columns, name: "long"},
        lambda frame: frame.select("*", F.count("*").over(window(*(F.col(quoted(one)) for one in by))).alias(name)),
        f"count over {by}",
    )  # fmt: skip


STEPS: tuple[Step, ...] = (
    *(_project,) * 3, *(_filter,) * 2, *(_join,) * 4, *(_union,) * 2, *(_aggregate,) * 3, *(_windows,) * 2,
    *(_ranked,) * 3, _exploded, _inlined, _distinct, _limit, _pivot, _arranged, _over_all,
)  # fmt: skip


def transform(seed: int) -> Relation:
    """The transform of a seed."""
    chance = Random(seed)
    return Making(chance).relation(chance.randint(1, 4))
