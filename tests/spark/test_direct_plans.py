"""A plan that is kept gives what Spark ordinarily gives. `python -m tests.direct` tries many more transforms."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pandas as pd  # type: ignore[import-untyped]  # it brings no types
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltaworks.engine.spark.direct_plan import DirectPlan, planning_session
from deltaworks.engine.spark.internals import NAMES, Internals
from deltaworks.engine.spark.picked import Picked
from deltaworks.engine.spark.refusals import NotDirectError
from deltaworks.engine.writers.writer import ONE_TASK_BYTES_MAX, frame
from tests.chance import Share, seeded
from tests.direct.both import Both, Room
from tests.direct.differences import ALONE, Found, culprits_of, several, shop_functions
from tests.direct.rows import INPUTS, SCHEMA, rows

SEED = 20_261_125
"""The same transforms in each run; `python -m tests.direct` tries others."""
MADE = 300
"""A run has a third of them, `--whole` all."""
CULPRITS = 12
Frames = Mapping[str, DataFrame]


@pytest.fixture(scope="module")
def room(spark: SparkSession) -> Room:
    """Give sessions to plan in, and to compute ordinarily in."""
    return Room(spark)


def test_the_shop_computes_the_same_in_both_ways(room: Room) -> None:
    """Every transform and keys_from, over none, one, sixty and four hundred rows of each input; none is refused."""
    found = [one for _, one in shop_functions(room, seeded(SEED), (60, 0, 1, 400))]

    assert len(found) > 50
    assert [one.told for one in found if one.seen.get("rows", 0) == 0] == []
    assert [f"{one.told}: {one.refused}" for one in found if one.refused is not None] == []
    assert [str(one) for one in found if one.differences] == []


def test_transforms_made_by_chance_compute_the_same_in_both_ways(room: Room, share: Share) -> None:
    """Over rows that change, none of them, rows that raise, and good ones after these: rows, types, refusals."""
    made = share(range(SEED, SEED + MADE))
    found = list(several(room, made, batches=1, large=0.02))
    seen = sum((Counter(one.seen) for one in found), Counter[str]())

    assert [str(one) for one in found if one.differences] == []
    in_many_ways = set(seen) - {"rows", "no rows", "not analysed", "too much at once", ALONE}
    assert len(in_many_ways) >= 8, "rows that raise"
    assert seen["rows"] > len(made)
    assert sum(one.refused is not None for one in found) < len(made) / 10, Counter(one.refused for one in found)


@pytest.mark.parametrize("many", [60, ONE_TASK_BYTES_MAX // 8])
def test_a_column_that_no_result_has_refuses_no_row(room: Room, many: int) -> None:
    """Few rows, and more than are made one task, in both ways: Spark's optimiser would compute it of those."""
    given = pa.table({"a": range(many), "z": [0] * many})

    def function(rows: Frames) -> DataFrame:
        return rows["t"].withColumn("never", F.col("a") / F.col("z")).select("a")

    both = Both(room, function, {"t": given.schema})

    assert both.differences({"t": given}) == []
    assert both.ordinary({"t": given}).num_rows == many
    both.close()


@pytest.mark.parametrize("text", ["array(7L)[a]", "array(array(7L)[a])", "struct(array(7L)[a] as b)"])
def test_nulls_are_given_where_spark_says_that_there_are_none(room: Room, text: str) -> None:
    """Spark takes an item of an array for one that is there, whatever its place is."""
    given = pa.table({"a": pa.array([0, None], pa.int32())})
    both = Both(room, lambda rows: rows["t"].selectExpr(f"{text} as x"), {"t": given.schema})

    assert both.differences({"t": given}) == []
    assert [repr(row).count("7") for row in both.ordinary({"t": given}).to_pylist()] == [1, 0]
    both.close()


def test_names_that_are_looked_up_again_are_those_of_the_same_classes(spark: SparkSession) -> None:
    """As another Spark of the same JVM does: py4j calls methods by the name of their class."""
    given = pa.table({"a": [1, 2]})
    for _ in range(2):
        plan = DirectPlan(
            planning_session(spark), Internals(spark), lambda rows: rows["t"].groupBy().sum("a"), {"t": given.schema}
        )
        assert plan({"t": given}).to_pylist() == [{"sum(a)": 3}]
        plan.close()


def test_bisection_finds_the_same_rows(room: Room) -> None:
    """The same rows are left out of a table, whichever way it is computed in."""
    found, seed = list[tuple[object, object]](), SEED
    while len(found) < CULPRITS:
        one = culprits_of(room, seed)
        found += [] if one is None else [one]
        seed += 1

    assert any(direct for direct, _ in found)
    assert [one for one in found if one[0] != one[1]] == []


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.timestamp("us", "UTC")), [[0, 1], None, [2], [], None]),
        (pa.list_(pa.struct([("a", pa.int32())])), [[{"a": 1}], None, [{"a": 2}], [], None]),
        (pa.map_(pa.string(), pa.int32()), [[("a", 1)], None, [("b", 2)], [], None]),
        (
            pa.struct([("a", pa.list_(pa.list_(pa.int32())))]),
            [{"a": [[1]]}, None, {"a": None}, {"a": [[2], None]}, None],
        ),
    ],
    ids=str,
)
def test_a_part_of_rows_is_taken_as_it_is(spark: SparkSession, kind: pa.DataType, values: list[object]) -> None:
    """Rows are halved to find those that raise; lists and maps of a part lie among the others' values."""
    part = pa.table({"x": pa.array(values, kind)}).slice(1, 3)

    assert frame(spark, part).toArrow().to_pylist() == part.to_pylist()


def _udf(frames: Frames) -> DataFrame:
    return frames["one"].select(F.udf(lambda value: value, "int")("order").alias("x"))


def _pandas_udf(frames: Frames) -> DataFrame:
    @F.pandas_udf("int")  # type: ignore[attr-defined, untyped-decorator]  # PySpark names it at run time
    def same(values: pd.Series) -> pd.Series:
        return values

    return frames["one"].select(same("order").alias("x"))


def _non_equi(frames: Frames, how: str) -> DataFrame:
    left, right = frames["one"].alias("l"), frames["two"].alias("r")
    return left.join(right, F.col("l.key") < F.col("r.key"), how).select("l.key")


def _other_rows(frames: Frames) -> DataFrame:
    return frames["one"].select("key").union(frames["one"].sparkSession.createDataFrame(pa.table({"key": [1]})))


def _not_in(frames: Frames) -> DataFrame:
    asked = "select key from {one} where key not in (select key from {two})"
    return frames["one"].sparkSession.sql(asked, one=frames["one"], two=frames["two"])


def _with(text: str) -> Callable[[Frames], DataFrame]:
    return lambda frames: frames["one"].select("key", F.expr(text).alias("x"))


REFUSED: Mapping[str, tuple[str, Callable[[Frames], DataFrame]]] = {
    "broadcast": ("broadcast", lambda f: f["one"].join(F.broadcast(f["two"].select("key")), "key").select("key")),
    "not in": ("broadcast", _not_in),
    "outer join by an inequality": ("broadcast", lambda f: _non_equi(f, "left")),
    "semi join by an inequality": ("broadcast", lambda f: _non_equi(f, "left_semi")),
    "scalar subquery": ("subquery", lambda f: f["one"].where(F.col("key") < f["two"].select(F.max("key")).scalar())),
    "whether there are rows": ("subquery", lambda f: f["one"].where(f["two"].exists())),
    "Python function": ("Python function", _udf),
    "pandas function": ("Python function", _pandas_udf),
    "Arrow function": ("Python function", lambda f: f["one"].select("key").mapInArrow(lambda parts: parts, "key long")),
    "clock": ("CurrentTimestamp", _with("current_timestamp()")),
    "clock as a default": ("CurrentTimestamp", _with("unix_timestamp()")),
    "day": ("CurrentDate", _with("current_date()")),
    "word of the clock": ("'now'", _with("cast('now' as timestamp)")),
    "word of the clock, parsed": ("'now'", _with("to_timestamp('now')")),
    "word of the day, parsed": ("'today'", _with("to_date('Today ')")),
    "word of the day, put together": ("'today'", _with("cast(concat('to', 'day') as date)")),
    "day in the parser's place of a word": ("of these days", _with("date'tomorrow'")),
    "time in the parser's place of a word": ("of these days", _with("timestamp'now'")),
    "Python's clock": ("of these days", lambda f: f["one"].where(F.col("at") < F.lit(datetime.now(UTC)))),
    "chance": ("Rand", _with("rand(1)")),
    "chance in a case": ("Rand", _with("case when Flag and rand() > 0.5 then 1 end")),
    "chance in an else": ("Rand", _with("case when Flag then 1 else rand() end")),
    "clock in a filter": (
        "CurrentTimestamp",
        lambda f: f["one"].agg(F.expr("count(*) filter (where at < current_timestamp())")),
    ),
    "chance in a function of elements": ("Rand", _with("transform(array(1, 2), x -> x + rand())")),
    "chance in a window": ("Rand", _with("row_number() over (partition by key order by rand())")),
    "chance in a subquery": ("Rand", lambda f: f["one"].where(f["two"].where("rand() > 0.5").exists())),
    "chance in what has a name": (
        "Rand",
        lambda f: f["one"].sparkSession.sql("with x as (select rand() r from {one}) select * from x", one=f["one"]),
    ),
    "made-up ids": ("Uuid", _with("uuid()")),
    "numbers of rows": ("MonotonicallyIncreasingID", _with("monotonically_increasing_id()")),
    "method of Java": ("CallMethodViaReflection", _with("java_method('java.util.UUID', 'randomUUID')")),
    "sample": ("Sample", lambda f: f["one"].sample(0.5, seed=1)),
    "kept rows": ("InMemoryTableScan", lambda f: f["one"].where("key > 0").cache()),
    "rows kept at the first use": ("no input's", lambda f: f["one"].select("key").localCheckpoint(eager=False)),
    "rows of its own": ("no input's", _other_rows),
    "numbers": ("Range", lambda f: f["one"].select("key").union(f["one"].sparkSession.range(3))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_the_second_time_takes_the_ordinary_way(room: Room, name: str) -> None:
    """What keeps its first rows, reads the clock or chance, needs a worker, or reads anything but the inputs."""
    reason, function = REFUSED[name]

    with pytest.raises(NotDirectError, match=reason):
        DirectPlan(room.planning, room.internals, function, dict.fromkeys(INPUTS, SCHEMA))


TAKEN: Mapping[str, Callable[[Frames], DataFrame]] = {
    "in": lambda f: f["one"].sparkSession.sql(
        "select key from {one} where key in (select key from {two})", one=f["one"], two=f["two"]
    ),
    "correlated": lambda f: f["one"].alias("o").where(
        f["two"].where(F.col("key") == F.col("o.key").outer()).exists() | F.col("Flag")
    ),
    "lateral": lambda f: f["one"].alias("o").lateralJoin(
        f["two"].where(F.col("key") == F.col("o.key").outer()).select(F.count("*").alias("n"))
    ).select("o.key", "n"),
    "twice": lambda f: f["one"].sparkSession.sql(
        "with x as (select key, count(*) n from {one} group by key) select * from x union all select * from x",
        one=f["one"],
    ),
    "inequality": lambda f: _non_equi(f, "inner"),
    "one name twice": lambda f: f["one"].select("key", "key"),
    "names that differ in case": lambda f: f["one"].select(F.col("key").alias("A"), F.col("order").alias("a")),
    "another order": lambda f: f["one"].select(*(f"`{name.replace('`', '``')}`" for name in reversed(SCHEMA.names))),
    "no column": lambda f: f["one"].select(),
    "void": lambda f: f["one"].select(F.lit(None).alias("n")),
    "interval": lambda f: f["one"].select((F.col("when") - F.col("at")).alias("n")),
    "local time": lambda f: f["one"].select(F.col("at").cast("timestamp_ntz").alias("n")),
    "collation": lambda f: f["one"].groupBy(F.collate("`do.t`", "UTF8_LCASE").alias("x")).count(),
    "narrow numbers": lambda f: f["one"].select(F.col("ratio").cast("float"), F.col("order").cast("tinyint")),
    "all": lambda f: f["one"],
    "limit without order": lambda f: f["one"].limit(3).select(F.lit(1).alias("n")),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_rare_forms_compute_the_same_in_both_ways(room: Room, name: str) -> None:
    """Those that chance does not make."""
    both, chance = Both(room, TAKEN[name], dict.fromkeys(INPUTS, SCHEMA)), seeded(SEED)

    found = [both.differences({one: rows(chance, many) for one in INPUTS}) for many in (20, 0, 7)]

    both.close()
    assert found == [[], [], []]


PICKS: Mapping[str, tuple[Callable[[Frames], DataFrame], Picked | None]] = {
    "some": (lambda f: f["two"].select("order", "key"), ("two", ["order", "key"])),
    "one by another name": (lambda f: f["one"].select(F.col("key").alias("x")), ("one", ["key"])),
    "names that change places": (
        lambda f: f["one"].select(F.col("key").alias("order"), F.col("order").alias("key")).select("key", "KEY"),
        ("one", ["order", "order"]),
    ),
    "some that are kept": (lambda f: f["one"].select("key").cache(), ("one", ["key"])),
    "a name of the whole": (lambda f: f["one"].alias("x").select("x.key"), None),
    "a field of one": (lambda f: f["one"].select(F.struct("key").alias("x")).select("x.key"), None),
    "a type": (lambda f: f["one"].select(F.col("key").cast("string")), None),
    "some of the rows": (lambda f: f["one"].where("key > 0").select("key"), None),
    "each once": (lambda f: f["one"].select("key").distinct(), None),
    "of both": (lambda f: f["one"].select("key").union(f["two"].select("key")), None),
    "nothing": (lambda f: f["one"].select(), None),
}  # fmt: skip


@pytest.mark.parametrize("name", PICKS)
def test_what_only_picks_columns_needs_no_plan(room: Room, name: str) -> None:
    """Arrow picks them; whatever else is done is told apart, and both give the same rows."""
    function, wanted = PICKS[name]
    both, chance = Both(room, function, dict.fromkeys(INPUTS, SCHEMA)), seeded(SEED)

    found = [both.differences({one: rows(chance, many) for one in INPUTS}) for many in (20, 0)]

    both.close()
    assert both.plan is not None
    assert (found, both.plan.picked) == ([[], []], wanted)


def test_rows_of_any_size_go_in(room: Room) -> None:
    """Small ones through the gateway, larger ones by file, in turn: none keeps the other's."""
    both, chance = Both(room, lambda frames: frames["one"], {"one": SCHEMA}), seeded(SEED)

    found = [both.differences({"one": rows(chance, many)}) for many in (3, 5_000, 0, 20_001, 3)]

    both.close()
    assert found == [[]] * 5


def test_what_counts_its_rows_while_it_is_planned_is_not_planned(room: Room) -> None:
    """There are none yet, and what it takes from them would be in the plan for ever."""

    def counts(frames: Frames) -> DataFrame:
        return frames["one"].select("key", F.lit(frames["two"].count()).alias("n"))

    with pytest.raises(Py4JJavaError):
        DirectPlan(room.planning, room.internals, counts, dict.fromkeys(INPUTS, SCHEMA))


def test_spark_has_the_names_that_plans_lean_on(spark: SparkSession) -> None:
    """A newer Spark that lacks one takes every transform the ordinary way: this says which it is."""
    jvm = spark._jvm
    assert jvm is not None

    def methods(name: str) -> set[str]:
        classes = [jvm.java.lang.Class.forName(f"{name}{end}") for end in ("", "$") if _there(jvm, f"{name}{end}")]
        return {str(one.getName()) for found in classes for one in found.getMethods()}

    lacking = {name: set(wanted) - methods(name) for name, wanted in NAMES.items()}

    assert [name for name in NAMES if not _there(jvm, name)] == []
    assert {name: some for name, some in lacking.items() if some} == {}


def _there(jvm: object, name: str) -> bool:
    try:
        jvm.java.lang.Class.forName(name)  # type: ignore[attr-defined]  # a name of Java's
    except Exception:  # noqa: BLE001  # the JVM's own kinds
        return False
    return True


def test_a_finding_tells_its_seed_and_its_transform() -> None:
    """What a failed run prints is enough to see it again."""
    assert (
        str(Found(seed=7, told="one\n  where a", differences=("bad: 1 row",))) == "seed 7: bad: 1 row\none\n  where a"
    )
