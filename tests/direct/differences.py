"""Transforms made by chance, in both ways over rows that change; and all that the shop computes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa
from bench import functions
from pyspark.errors import AnalysisException, PySparkException

from deltaworks.engine.spark.refusals import NotDirectError
from tests.direct.both import Both, Given, Room
from tests.direct.generated import Relation, transform
from tests.direct.rows import INPUTS, SCHEMA, all_null, doubled, rows

MANY = 10_000
THREADS = 2
ALONE = "raised by the plan alone"
"""Where an input has no rows Spark plans away what would be joined with them. A plan computes it; the ordinary way is
asked what a plan that raises gives, so nothing comes of that but a slower turn."""
KINDS = ("bad", "again", "empty", "one", "null", "doubled", "bare", "mixed")
"""Kinds of batches, besides the first one."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What came of one transform."""

    seed: int
    told: str
    differences: Sequence[str] = ()
    refused: str | None = None
    """Why it takes the ordinary way."""
    seen: Mapping[str, int] = field(default_factory=Counter)
    """How many batches had rows, none, or raised what."""

    def __str__(self) -> str:
        """The findings, and the transform that they are of."""
        lines = "\n".join(self.differences)
        return f"seed {self.seed}: {lines}\n{self.told}"


def several(room: Room, seeds: Sequence[int], *, batches: int, large: float = 0.0) -> Iterator[Found]:
    """Hold the transforms of these seeds together, two at once: `large` is the part that also gets many rows."""
    with ThreadPoolExecutor(THREADS) as threads:
        yield from threads.map(lambda seed: one(room, seed, batches=batches, large=large), seeds)


def one(room: Room, seed: int, *, batches: int = len(KINDS), large: float = 0.0) -> Found:
    """Hold the transform of a seed together, over so many batches and the first."""
    made, chance = transform(seed), Random(seed)
    try:
        both = Both(room, made.build, dict.fromkeys(INPUTS, SCHEMA))
    except NotDirectError as error:
        return Found(seed=seed, told=made.told, refused=str(error))
    except AnalysisException as error:
        return _not_analysed(room, seed, made, error)
    except PySparkException as error:  # a constant that raises while it is planned
        return Found(seed=seed, told=made.told, refused=f"cannot be planned: {error.getCondition()}")
    found, seen = list[str](), Counter[str]()
    for kind, given in _batches(made, chance, batches, large):
        direct, ordinary = both.outcomes(given)
        if ordinary is None:
            seen["too much at once"] += 1  # for a plan: the ordinary way has no bound
            continue
        if direct.of_a_row and ordinary.raised is None and not all(one.num_rows for one in given.values()):
            seen[ALONE] += 1
            continue
        found += [f"{kind}: {line}" for line in direct.against(ordinary)]
        if ordinary.raised is not None:
            seen[str(ordinary.raised[1])] += 1
        else:
            seen["rows" if ordinary.rows else "no rows"] += 1
    both.close()
    return Found(seed=seed, told=made.told, differences=found, seen=seen)


def _not_analysed(room: Room, seed: int, made: Relation, error: AnalysisException) -> Found:
    """A transform that is wrong is so in both ways."""
    empty = {name: room.ordinary.createDataFrame(SCHEMA.empty_table()) for name in INPUTS}
    try:
        made.build(empty)
    except AnalysisException as other:
        alike = other.getCondition() == error.getCondition()
    else:
        alike = False
    found = [] if alike else [f"planning raised {error}"]
    return Found(seed=seed, told=made.told, differences=found, seen=Counter({"not analysed": 1}))


def _batches(made: Relation, chance: Random, count: int, large: float) -> Iterator[tuple[str, Given]]:
    """Rows that change from batch to batch; after those that raise come good ones."""
    many = 12 if made.grows else 60
    kinds = chance.sample(KINDS, count)
    if made.risky and "bad" not in kinds:
        kinds[-1:] = ["bad"]
    if kinds[-1:] == ["bad"]:
        kinds = ["bad", *kinds[:-1]]
    kinds = ["bad", "first"] if kinds == ["bad"] else ["first", *kinds]
    for kind in kinds:
        yield kind, _given(chance, kind, many)
    if not made.grows and chance.random() < large:
        yield "large", _given(chance, "large", MANY)


def _given(chance: Random, kind: str, many: int) -> dict[str, pa.Table]:
    return {name: _rows(chance, kind, many, first=name == INPUTS[0]) for name in INPUTS}


def _rows(chance: Random, kind: str, many: int, *, first: bool) -> pa.Table:
    match kind:
        case "empty":
            many = 0
        case "mixed":
            many = many if first else 0
        case "null":
            return all_null(5)
        case "doubled":
            return doubled(rows(chance, many // 3))
    nulls = 0.0 if kind in {"one", "bare"} else 0.15
    return rows(chance, 1 if kind == "one" else many, nulls=nulls, bad=3 * (kind == "bad"))


def culprits_of(room: Room, seed: int, *, many: int = 24, bad: int = 3) -> tuple[object, object] | None:
    """Which rows of the first input raise alone in the transform of a seed, in both ways; None where none can."""
    made, chance = transform(seed), Random(seed)
    if not made.risky:
        return None
    try:
        both = Both(room, made.build, dict.fromkeys(INPUTS, SCHEMA))
    except (NotDirectError, PySparkException):
        return None
    given = {name: rows(chance, many, bad=bad, nulls=0.05) for name in INPUTS}
    for name in INPUTS[1:]:
        given[name] = rows(chance, many)
    found = both.culprits(given, INPUTS[0])
    both.close()
    return found


def shop_functions(room: Room, chance: Random, sizes: Sequence[int]) -> Iterator[tuple[functions.Function, Found]]:
    """All that the shop computes, over so many rows of each input in turn."""
    for function in functions.functions(room.ordinary):
        try:
            both = Both(room, function.call, function.inputs)
        except NotDirectError as error:
            yield function, Found(seed=0, told=function.name, refused=str(error))
            continue
        found, seen = list[str](), Counter[str]()
        for many in sizes:
            given = {name: functions.rows(chance, schema, many) for name, schema in function.inputs.items()}
            direct, ordinary = both.outcomes(given)
            assert ordinary is not None, f"{function.name} gives too much of {many} rows"
            found += [f"{many} rows: {line}" for line in direct.against(ordinary)]
            seen["rows"] += len(ordinary.rows)
        both.close()
        yield function, Found(seed=0, told=function.name, differences=found, seen=seen)
