"""Views over inputs that are cut to the rows that some keys need, against those over whole inputs, as rows change."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltaworks.engine.needed import needed
from deltaworks.engine.poison import is_of_rows
from deltaworks.engine.snapshot import Snapshot, UnknownError
from deltaworks.engine.spark.direct_plan import DirectPlan
from deltaworks.engine.spark.pushed_keys import Expression, PushedKeys, with_expressions
from deltaworks.engine.spark.refusals import NotDirectError
from deltaworks.engine.writers.replacing import semi
from tests.differential import contents
from tests.direct.both import Room
from tests.direct.rows import START

Call = Callable[[Mapping[str, DataFrame]], DataFrame]
Rows = dict[str, pa.Table]
SCHEMA = pa.schema([
    ("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64()), ("T", pa.string()), ("at", pa.timestamp("us", "UTC")),
    ("p", pa.decimal128(12, 2)), ("ok", pa.bool_()), ("d", pa.date32()), ("x", pa.float64()),
])  # fmt: skip
INPUTS = ("one", "two", "three")


@dataclass(frozen=True, kw_only=True)
class View:
    """A view, and the columns of it that are its keys."""

    told: str
    call: Call
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What came of one view."""

    told: str
    differences: Sequence[str] = ()
    cut: Mapping[str, int] = field(default_factory=Counter)
    """How many rows of inputs were there, and how many were given."""


def held(
    room: Room, view: View, inputs: Mapping[str, pa.Schema], start: Rows, change: Callable[[Rows], Rows], *, turns: int
) -> Found:
    """Change rows in so many turns; in each ask for the keys that changed, and for others."""
    plan = DirectPlan(room.planning, room.internals, view.call, inputs)
    keys = pa.schema([plan.schema.field(name) for name in view.keys])
    pushed = plan.pushed_keys(keys)
    cutting = Cutting(room, inputs, plan)
    cutting.begin(start)
    chance, found, seen = Random(view.told), list[str](), Counter[str]()
    before, rows = plan({name: one.slice(0, 0) for name, one in start.items()}), start
    for turn in range(turns):
        rows = change(rows)
        cutting.follow(rows)
        try:
            after = plan(rows)
        except Exception as error:
            if not is_of_rows(error):
                raise
            continue  # whole inputs raise: there is nothing to hold against
        for touched in _touched(chance, before.select(view.keys), after.select(view.keys), keys):
            some = cutting.needed(touched)
            for name in inputs:
                seen["there"] += rows[name].num_rows
                seen["given"] += some[name].num_rows
            line = _compared(plan(some), after, touched)
            if line:
                found.append(f"turn {turn}, keys {touched.to_pylist()[:3]}: {line}")
        before = after
    found += [f"snapshot of {name} differs" for name in cutting.strayed(rows)]
    plan.close()
    cutting.close()
    return Found(told=f"{view.told} by {view.keys}: {pushed.scans}", differences=found, cut=seen)


def views(room: Room, seeds: Iterable[int], *, turns: int = 6) -> Iterator[str]:
    """Views made by chance; each line is a finding, none is well."""
    cut = Counter[str]()
    for seed in seeds:
        chance = Random(seed)
        view = made(chance)
        start = {name: made_rows(chance, 25) for name in INPUTS}
        try:
            found = held(room, view, dict.fromkeys(INPUTS, SCHEMA), start, partial(changed, chance), turns=turns)
        except NotDirectError:
            continue
        cut["some" if found.cut["given"] < found.cut["there"] else "whole"] += 1
        yield from (f"seed {seed}: {line}\n{found.told}" for line in found.differences)
    print(f"inputs were given {dict(cut)}")  # noqa: T201  # shown with a failure
    if not cut["some"] or cut["some"] < cut.total() / 4:
        yield f"few views are cut: {dict(cut)}"


def _compared(mine: pa.Table, whole: pa.Table, keys: pa.Table) -> str | None:
    one, other = contents(semi(mine, keys)), contents(semi(whole, keys))
    if one == other:
        return None
    lacking, extra = sorted(set(other) - set(one)), sorted(set(one) - set(other))
    return f"{len(one)} rows, from whole inputs {len(other)}; lacking {lacking[:1]}, extra {extra[:1]}"


def _touched(chance: Random, before: pa.Table, after: pa.Table, keys: pa.Schema) -> Iterator[pa.Table]:
    """Keys to ask for: those that came and went, some of both, one alone, null, and what no row has."""
    every = pa.concat_tables([before, after]).cast(keys).group_by(keys.names).aggregate([])
    if every.num_rows:
        some = sorted(chance.sample(range(every.num_rows), min(every.num_rows, chance.randint(1, 4))))
        yield every.take(some)
        yield every.slice(chance.randrange(every.num_rows), 1)
        mixed = [chance.choice(every[name].to_pylist()) for name in keys.names]
        yield pa.table([[value] for value in mixed], schema=keys)
        without = every.drop_null()
        if without.num_rows:
            yield without.take([chance.randrange(without.num_rows)])
            yield from (without.select([name]).take([chance.randrange(without.num_rows)]) for name in keys.names[:2])
    yield pa.table([pa.nulls(1, one.type) for one in keys], schema=keys)


class Cutting:
    """Inputs kept as snapshots, as a view's writer keeps them."""

    def __init__(self, room: Room, inputs: Mapping[str, pa.Schema], plan: DirectPlan) -> None:
        """Cut by what decides keys of this plan's result, all of them or a part."""
        self._room, self._inputs, self._plan = room, inputs, plan
        self._pushed: dict[tuple[str, ...], PushedKeys] = {}
        self._kept: dict[str, Snapshot] = {}
        self._rows: Rows = {}
        self._plans: list[DirectPlan] = []

    def begin(self, rows: Rows) -> None:
        """With these rows."""
        self._rows = rows
        for name, table in rows.items():
            self._kept[name] = Snapshot(table, version=0, told_by=table.schema.names[:1])

    def follow(self, rows: Rows) -> None:
        """As the change feed tells it: all that was and is not, all that is and was not."""
        for name, table in rows.items():
            change = pa.concat_tables([
                _marked(_minus(self._rows[name], table), "update_preimage"),
                _marked(_minus(table, self._rows[name]), "update_postimage"),
            ])  # fmt: skip
            self._kept[name].follow(change, version=self._kept[name].version + 1)
        self._rows = rows

    def needed(self, keys: pa.Table) -> Rows:
        """What these keys can be made from."""
        known = self._known(tuple(keys.column_names), keys.schema)
        return needed(self._kept, [(keys, known)])

    def strayed(self, rows: Rows) -> list[str]:
        """Snapshots that have other rows than they should."""
        return [name for name, kept in self._kept.items() if contents(kept.rows()) != contents(rows[name])]

    def close(self) -> None:
        """It is not used any more."""
        for plan in self._plans:
            plan.close()

    def _known(self, names: tuple[str, ...], schema: pa.Schema) -> PushedKeys:
        if names not in self._pushed:
            known = self._pushed[names] = self._plan.pushed_keys(schema)
            for name, kept in self._kept.items():
                if expressions := known.expressions_of(name):
                    kept.compute(expressions, self._compute(name, expressions), reader=names)
        return self._pushed[names]

    def _compute(self, name: str, expressions: Mapping[str, Expression]) -> Callable[[pa.Table], pa.Table]:
        plan = DirectPlan(
            self._room.planning, self._room.internals, lambda frames: with_expressions(frames[name], expressions),
            {name: self._inputs[name]},
        )  # fmt: skip
        self._plans.append(plan)

        def compute(rows: pa.Table) -> pa.Table:
            try:
                return plan({name: rows})
            except Exception as error:
                if is_of_rows(error):
                    raise UnknownError from error
                raise

        return compute


def _marked(rows: pa.Table, change: str) -> pa.Table:
    return rows.append_column("_change_type", pa.array([change] * rows.num_rows, pa.string()))


def _minus(rows: pa.Table, others: pa.Table) -> pa.Table:
    """Rows as often as they are there more often."""
    left = Counter(map(repr, others.to_pylist()))
    kept = []
    for row in map(repr, rows.to_pylist()):
        kept.append(left[row] <= 0)
        left[row] -= 1
    return rows.filter(pa.array(kept, pa.bool_()))


def made_rows(chance: Random, many: int) -> pa.Table:
    """Rows of few values each, so that keys meet and move."""
    return pa.Table.from_pylist([_row(chance) for _ in range(many)], schema=SCHEMA)


def _row(chance: Random) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.15 else value  # some

    return {
        "id": chance.getrandbits(40), "a": maybe(chance.randrange(5)), "b": maybe(chance.randrange(4)),
        "T": maybe(chance.choice(("a", "A", "b", "", "1", "2"))),
        "at": maybe(START + timedelta(hours=chance.randrange(60))), "p": maybe(Decimal(chance.randrange(400)) / 4),
        "ok": maybe(chance.random() < 0.6), "d": maybe((START + timedelta(days=chance.randrange(3))).date()),  # most
        "x": maybe(chance.choice((0.0, -0.0, 1.5, float("nan")))),
    }  # fmt: skip


def changed(chance: Random, rows: Rows) -> Rows:
    """Some rows with other values in place of theirs, keys too; some gone, some come."""

    def one(table: pa.Table) -> pa.Table:
        listed = table.to_pylist()
        for _ in range(chance.randint(0, 4)):
            if not listed:
                break
            at, other = chance.randrange(len(listed)), _row(chance)
            name = chance.choice(("a", "b", "T", "at", "ok", "d", "x"))
            roll = chance.random()
            if roll < 0.6:  # a key moves
                listed[at] = {**listed[at], name: other[name]}
            elif roll < 0.8:  # a row goes
                del listed[at]
            else:
                listed.append(chance.choice((other, listed[at])))
        return pa.Table.from_pylist(listed, schema=SCHEMA)

    return {name: one(table) if chance.random() < 0.7 else table for name, table in rows.items()}  # most


KEYS = (
    # what a key is made of, over the columns of one side
    "{0}a", "{0}b", "{0}T", "{0}d", "cast({0}at as date)", "date_trunc('day', {0}at)", "coalesce({0}a, -1)",
    "case when {0}ok then {0}a else {0}b end", "if({0}a > 2, 'many', 'few')", "upper({0}T)", "{0}a % 2",
    "cast({0}a as string)", "{0}a + {0}b", "nullif({0}a, 1)", "{0}p", "cast({0}p as decimal(20,4))", "{0}x", "{0}ok",
    "cast({0}a as int)", "'constant'", "cast(null as bigint)", "{0}a is null", "coalesce({0}T, 'none')", "{0}id",
    "greatest({0}a, {0}b)", "struct({0}a, {0}b).a", "concat({0}T, '')", "cast({0}x as string)", "{0}x + 0d",
    "try_cast({0}T as int)", "window({0}at, '1 day').start", "last_day({0}at)", "-{0}a", "abs({0}a)", "hash({0}T)",
)  # fmt: skip
BOTH_SIDES = (
    "coalesce(l.a, r.a)",
    "if(r.id is null, 0, l.a)",
    "l.a + r.b",
    "if(l.a = r.a, 1, 2)",
    "nvl2(r.a, l.b, r.b)",
)
CONDITIONS = (
    "l.a = r.a", "l.a <=> r.a", "l.a = r.a and l.b = r.b", "l.a = r.b and l.ok", "l.T = r.T and r.ok",
    "l.b = r.a and l.at < r.at",
    "l.a = r.a and r.b = 1", "l.a <=> r.b and l.T <=> r.T", "l.a + 1 = r.a", "cast(l.at as date) = r.d",
    "coalesce(l.a, -1) = coalesce(r.a, -1)", "l.a = r.a and (l.b <=> r.b or r.ok)", "l.x = r.x",
    "l.a = r.a and l.a = 2", "l.a = r.a and l.a = l.b",
)  # fmt: skip
HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")
FILTERS = (
    "a = 2", "a in (1, 2)", "b is not null", "b is null", "ok", "a = b", "coalesce(ok, true)", "T <> 'a'", "x > 0",
    "a <=> b",
    "a is null or a > 1", "not ok",
)  # fmt: skip


def made(chance: Random) -> View:
    """A view by chance."""
    return chance.choice((
        _grouped, _grouped, _joined, _joined, _joined, _joined, _joined_thrice, _united, _united, _ranked, _limited,
        _within,
        _parted, _set_of, _regrouped, _windowed, _windowed, _paired, sessions,
    ))(chance)  # fmt: skip


def _source(chance: Random, input_of: str) -> tuple[Call, str]:
    """An input, at times with a step over it."""
    roll, condition = chance.random(), chance.choice(FILTERS)
    if roll < 0.5:  # as it is
        return (lambda frames: frames[input_of]), input_of
    if roll < 0.7:  # filtered
        return (lambda frames: frames[input_of].where(condition)), f"{input_of} where {condition}"
    if roll < 0.85:  # once for each a and b
        # of zeros of both signs the order of rows says which is the greatest
        columns = [
            f"max({'x + 0d' if name == 'x' else f'`{name}`'}) as `{name}`"
            for name in SCHEMA.names if name not in ("a", "b")
        ]  # fmt: skip
        return (
            lambda frames: frames[input_of].groupBy("a", "b").agg(*map(F.expr, columns)).select(*SCHEMA.names),
            f"{input_of} grouped",
        )
    return (
        lambda frames: frames[input_of].selectExpr("*", "row_number() over (partition by a order by id) as n")
        .where("n <= 2").drop("n"),
        f"{input_of} ranked",
    )  # fmt: skip


def _grouped(chance: Random) -> View:
    source, told = _source(chance, "one")
    keys = {f"k{at}": text.format("") for at, text in enumerate(chance.sample(KEYS, chance.randint(1, 2)))}
    return _by(source, told, keys, ["count(*) as n", "sum(p) as p", "max(b) as b2"])


def _by(source: Call, told: str, keys: Mapping[str, str], aggregates: Sequence[str]) -> View:
    listed = [f"{text} as {name}" for name, text in keys.items()]
    return View(
        told=f"{told} grouped by {listed}",
        call=lambda frames: source(frames).selectExpr("*", *listed).groupBy(*keys).agg(*map(F.expr, aggregates)),
        keys=tuple(keys),
    )


def _joined(chance: Random) -> View:
    """Keys from either side, or from both; with itself at times."""
    left, told = _source(chance, "one")
    right, told_right = _source(chance, chance.choice(("two", "two", "one")))
    how, condition = chance.choice(HOW), chance.choice(CONDITIONS)
    one_sided = how in ("left_semi", "left_anti")
    keys = {}
    for at in range(chance.randint(1, 3)):
        if not one_sided and chance.random() < 0.2:  # of both
            keys[f"k{at}"] = chance.choice(BOTH_SIDES)
        else:
            keys[f"k{at}"] = chance.choice(KEYS).format("l." if one_sided else chance.choice(("l.", "r.")))
    listed = [f"{text} as {name}" for name, text in keys.items()]
    more = ["l.id as l", "l.p as p"] if one_sided else ["l.id as l", "r.id as r", "l.p as p", "r.p as q"]
    after = (
        chance.choice(("", "", "", "l.id is null or l.ok"))
        if one_sided
        else chance.choice(("", "", "", "r.id is null", "l.id is null", "l.ok or r.ok"))
    )
    grouped = chance.random() < 0.4  # some

    def call(frames: Mapping[str, DataFrame]) -> DataFrame:
        joined = left(frames).alias("l").join(right(frames).alias("r"), F.expr(condition), how)
        joined = joined.where(after) if after else joined
        made = joined.selectExpr(*listed, *more)
        return made.groupBy(*keys).agg(F.count("*").alias("n"), F.max("l").alias("l"), F.sum("p")) if grouped else made

    told = f"{told} {how} join {told_right} on {condition} {after} {listed} {grouped}"
    return View(told=told, call=call, keys=tuple(keys))


def _joined_thrice(chance: Random) -> View:
    hows = [chance.choice(HOW[:4]) for _ in range(2)]
    first = chance.choice(("l.a = r.a", "l.a <=> r.a", "l.b = r.b"))
    second = chance.choice(
        ("r.b = s.b", "l.a = s.a", "r.a <=> s.a", "coalesce(l.b, r.b) = s.b", "l.a = s.a and r.b = s.b")
    )
    keys = {
        f"k{at}": chance.choice(KEYS).format(chance.choice(("l.", "r.", "s."))) for at in range(chance.randint(1, 3))
    }
    listed = [f"{text} as {name}" for name, text in keys.items()]
    return View(
        told=f"one {hows[0]} two on {first} {hows[1]} three on {second} {listed}",
        call=lambda frames: frames["one"].alias("l").join(frames["two"].alias("r"), F.expr(first), hows[0])
        .join(frames["three"].alias("s"), F.expr(second), hows[1])
        .selectExpr(*listed, "l.id as l", "r.id as r", "s.id as s"),
        keys=tuple(keys),
    )  # fmt: skip


def _united(chance: Random) -> View:
    """Constants per branch, and null."""
    branches = []
    for at in range(chance.randint(2, 3)):
        source, told = _source(chance, chance.choice(INPUTS))
        kind = chance.choice((f"'{at}'", "'same'", "cast(null as string)", "T", "upper(T)"))
        key = chance.choice(("a", "b", "a + 1", "cast(null as bigint)", "7L", "coalesce(a, b)"))
        branches.append((source, told, [f"{kind} as kind", f"{key} as k", "id", "p"]))
    grouped, keys = chance.random() < 0.5, chance.choice((("kind", "k"), ("kind",), ("k",)))  # half

    def call(frames: Mapping[str, DataFrame]) -> DataFrame:
        made: DataFrame | None = None
        for source, _, listed in branches:
            branch = source(frames).selectExpr(*listed)
            made = branch if made is None else made.union(branch)
        assert made is not None
        return made.groupBy(*keys).agg(F.count("*"), F.sum("p"), F.max("id")) if grouped else made

    told = f"union of {[(told, listed) for _, told, listed in branches]} {grouped}"
    return View(told=told, call=call, keys=keys)


def _ranked(chance: Random) -> View:
    """A window over the key, over more, or over something else."""
    source, told = _source(chance, "one")
    by = chance.choice(("a", "a, b", "b", "T", "cast(at as date)", "''"))
    function = chance.choice(("row_number()", "lag(id, 1)", "sum(p)", "count(*)", "first_value(id)"))
    text = f"{function} over (partition by {by} order by id) as n"
    keys, first = chance.choice((("a",), ("a", "b"), ("T",), ("b", "T"))), chance.random() < 0.5  # half

    def call(frames: Mapping[str, DataFrame]) -> DataFrame:
        made = source(frames).selectExpr("*", text)
        return made.where("n = 1") if first and function.startswith("row") else made

    return View(told=f"{told} {text} {first}", call=call, keys=keys)


def _limited(chance: Random) -> View:
    """A limit between, which takes rows of all keys."""
    source, told = _source(chance, "one")
    many = chance.randint(1, 15)
    return _by(
        lambda frames: source(frames).orderBy("id").limit(many), f"{told} limit {many}",
        {"k": chance.choice(KEYS).format("")}, ["count(*) as n", "max(id) as id"],
    )  # fmt: skip


def _within(chance: Random) -> View:
    """With an aggregate of the same input, by its own key or by all of it."""
    by = chance.choice((["a"], ["b"], []))
    keys = chance.choice((("a",), ("b",), ("a", "b"), ("T",), ("most",)))

    def call(frames: Mapping[str, DataFrame]) -> DataFrame:
        most = frames["one"].groupBy(*by).agg(F.max("b").alias("most"), F.count("*").alias("of"))
        made = frames["one"].join(most, by, "left") if by else frames["one"].crossJoin(most)
        return made.where("b is null or b <= most").select("id", "a", "b", "T", "most", "of")

    return View(told=f"one with its greatest by {by}", call=call, keys=keys)


def _parted(chance: Random) -> View:
    """Sets of groups, and what is exploded."""
    if chance.random() < 0.5:  # half
        way = chance.choice(("rollup", "cube"))
        keys = chance.choice((("a", "b"), ("a",), ("b",), ("g", "a")))
        return View(
            told=f"one {way} a, b",
            call=lambda frames: getattr(frames["one"], way)("a", "b").agg(
                F.count("*").alias("n"), F.grouping_id().alias("g")
            ),
            keys=keys,
        )
    values = chance.choice(("array(a, b)", "array(a, 1L)", "sequence(0L, coalesce(a, 0L))"))
    keys = chance.choice((("v",), ("a",), ("a", "v")))
    return View(
        told=f"one exploded {values}",
        call=lambda frames: frames["one"].selectExpr("id", "a", f"explode_outer({values}) as v"),
        keys=keys,
    )


def _set_of(chance: Random) -> View:
    way = chance.choice(("intersect", "subtract", "exceptAll", "intersectAll", "unionByName"))
    mine, theirs = chance.choice((("a", "b"), ("a", "T"))), chance.choice((("a", "b"), ("a", "T")))
    theirs = mine if mine[1] != theirs[1] else theirs
    keys = chance.choice(((mine[0],), (mine[1],), mine))
    return View(
        told=f"one {way} two {mine}",
        call=lambda frames: getattr(frames["one"].select(*mine), way)(frames["two"].select(*theirs)),
        keys=keys,
    )


def _regrouped(chance: Random) -> View:
    """Groups of groups: a key that the lower one has, or what it has computed."""
    how = chance.choice(("max", "min", "count", "first"))
    lower = f"{how}(b) as m" if how != "first" else "max_by(b, id) as m"
    keys = chance.choice((("m",), ("h",), ("m", "h")))
    text = chance.choice(("a % 2", "a", "if(m > 1, 1, 0)", "coalesce(a, m)"))
    return View(
        told=f"one by a, {lower}, {text}",
        call=lambda frames: frames["one"].groupBy("a").agg(F.expr(lower), F.sum("p").alias("p"))
        .selectExpr("*", f"{text} as h").groupBy(*keys).agg(F.count("*").alias("n"), F.sum("p").alias("p")),
        keys=keys,
    )  # fmt: skip


def _windowed(chance: Random) -> View:
    """Windows that overlap: a row is in some of them, and beyond a join."""
    slide = chance.choice(("30 minutes", "1 hour"))
    window = chance.choice((f"window(at, '2 hours', '{slide}')", f"window(at, '90 minutes', '{slide}', '10 minutes')"))
    keys = chance.choice((("until",), ("since", "a"), ("until", "a"), ("a",)))
    joined = chance.random() < 0.4  # some

    def call(frames: Mapping[str, DataFrame]) -> DataFrame:
        made = frames["one"].selectExpr(f"{window} as w", "a", "id", "p")
        if joined:
            made = made.join(frames["two"].selectExpr("a", "b as theirs"), "a")
        return (
            made.groupBy("w", "a")
            .agg(F.count("*").alias("n"), F.sum("p").alias("p"))
            .selectExpr("w.start as since", "w.end as until", "a", "n", "p")
        )

    return View(told=f"one in {window} {joined}", call=call, keys=keys)


def _paired(chance: Random) -> View:
    """Pairs of what belongs together: keys of both sides, of which a part may be asked for, and others beside them."""
    how = chance.choice(("inner", "left", "right", "left_semi", "left_anti"))
    same = chance.choice(("a", "T", "d"))
    distinct, third = chance.random() < 0.6, chance.choice(HOW)
    one_sided = how in ("left_semi", "left_anti")
    sided = third in ("left_semi", "left_anti")
    keys = ("mine",) if one_sided or sided else ("mine", "theirs")

    def call(frames: Mapping[str, DataFrame]) -> DataFrame:
        mine = frames["one"].selectExpr(same, "b as mine")
        theirs = frames["one"].where("ok").selectExpr(f"{same}", "b as theirs")
        if distinct:
            mine, theirs = mine.distinct(), theirs.distinct()
        pairs = mine.join(theirs, same, how)
        named = frames["two"].selectExpr("b as mine", "T as name").distinct()
        made = pairs.join(named, "mine", third)
        return made.groupBy(*keys).agg(F.count("*").alias("n"), F.max(same).alias("same"))

    return View(told=f"pairs of one {how} by {same} {distinct} {third}", call=call, keys=keys)


def sessions(chance: Random) -> View:
    """Rows that stand close together: which session a row is in follows from others."""
    keys = chance.choice((("since", "a"), ("a",), ("since",)))

    def call(frames: Mapping[str, DataFrame]) -> DataFrame:
        made = frames["one"].groupBy("a", F.session_window("at", "5 hours").alias("w"))
        return made.agg(F.count("*").alias("n"), F.max("id").alias("last")).selectExpr(
            "w.start as since", "a", "n", "last"
        )

    return View(told=f"one in sessions by {keys}", call=call, keys=keys)
