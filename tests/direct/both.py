"""One function of DataFrames in both ways: by a kept plan, and as Spark computes it ordinarily."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from deltaworks.engine.collect import collected
from deltaworks.engine.halves import TooManyError
from deltaworks.engine.poison import CAUSES_MAX, as_pyspark, culprits, is_of_rows
from deltaworks.engine.spark.direct_plan import DirectPlan, planning_session
from deltaworks.engine.spark.internals import Internals, TooMuchResultError
from deltaworks.engine.writers.writer import frame
from tests.differential import contents

Function = Callable[[Mapping[str, DataFrame]], DataFrame]
Given = Mapping[str, pa.Table]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of rows: a result, or what was raised."""

    rows: tuple[str, ...] = ()
    schema: pa.Schema | None = None
    raised: tuple[str, str | None, str | None, bool] | None = None
    """Class, condition, SQLSTATE, and whether it is a row's."""

    @property
    def of_a_row(self) -> bool:
        """Whether a row raised."""
        return self.raised is not None and self.raised[3]

    @classmethod
    def of(cls, compute: Callable[[], pa.Table]) -> "Outcome":
        """Compute it."""
        try:
            found = compute()
        except Exception as error:  # noqa: BLE001  # whatever one way raises the other has to
            return cls(raised=_raised(error))
        found.validate(full=True)
        return cls(rows=tuple(contents(found)), schema=found.schema)

    def against(self, other: "Outcome") -> Iterator[str]:
        """In what the direct one differs from the ordinary one."""
        if self.raised != other.raised:
            yield f"raised {self.raised}, ordinarily {other.raised}"
        elif self.schema != other.schema:
            yield f"schema {self.schema}, ordinarily {other.schema}"
        elif self.rows != other.rows:
            lacking, extra = set(other.rows) - set(self.rows), set(self.rows) - set(other.rows)
            counts = f"{len(self.rows)} rows, ordinarily {len(other.rows)}"
            yield f"{counts}; lacking {sorted(lacking)[:2]}, extra {sorted(extra)[:2]}"


def _raised(error: Exception) -> tuple[str, str | None, str | None, bool]:
    error = as_pyspark(error)
    condition = error.getCondition() if isinstance(error, PySparkException) else _bare(error)
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    return type(error).__name__, condition, state, is_of_rows(error)


def _bare(error: Exception) -> str:
    """What Java's own error comes from, without numbers: the text has that of who was asked."""
    cause, told = getattr(error, "java_exception", None), str(error)
    for _ in range(CAUSES_MAX):
        if cause is None:
            break
        told, cause = str(cause), cause.getCause()
    told = re.sub(r"(NullPointerException).*", r"\1", told, flags=re.DOTALL)  # Java says more of it at times
    return re.sub(r"@[0-9a-f]+|\d+", "#", told)[:500]


class Room:
    """A planning session, and one for the ordinary way, for each thread."""

    def __init__(self, spark: SparkSession) -> None:
        """Look up what plans need."""
        self._spark, self.internals = spark, Internals(spark)
        self._mine = threading.local()

    @property
    def planning(self) -> SparkSession:
        """Where this thread plans."""
        return self._session("planning", lambda: planning_session(self._spark))

    @property
    def ordinary(self) -> SparkSession:
        """Where this thread computes ordinarily."""
        return self._session("ordinary", self._spark.newSession)

    def _session(self, name: str, make: Callable[[], SparkSession]) -> SparkSession:
        if not hasattr(self._mine, name):
            setattr(self._mine, name, make())
        made: SparkSession = getattr(self._mine, name)
        return made


class Both:
    """A function, planned once, and as it is."""

    def __init__(self, room: Room, function: Function, inputs: Mapping[str, pa.Schema]) -> None:
        """Plan it; raises NotDirectError, and what planning raises."""
        self._room, self._function, self._inputs = room, function, inputs
        self.plan = DirectPlan(room.planning, room.internals, function, inputs)

    def direct(self, given: Given) -> pa.Table:
        """By the plan."""
        return self.plan(given)

    def ordinary(self, given: Given) -> pa.Table:
        """As ever."""
        spark = self._room.ordinary
        frames = {name: frame(spark, rows.cast(self._inputs[name])) for name, rows in given.items()}
        found = collected(self._function(frames))
        assert found is not None, "more than fits into memory"
        return found

    def differences(self, given: Given) -> list[str]:
        """What is different over these rows; nothing is well."""
        direct, ordinary = self.outcomes(given)
        return [f"raised {direct.raised}"] if ordinary is None else list(direct.against(ordinary))

    def outcomes(self, given: Given) -> tuple[Outcome, Outcome | None]:
        """What comes of these rows directly, and ordinarily: None where it is more than a plan gives."""
        direct = Outcome.of(lambda: self.direct(given))
        if direct.raised is not None and direct.raised[0] == TooMuchResultError.__name__:
            return direct, None
        return direct, Outcome.of(lambda: self.ordinary(given))

    def culprits(self, given: Given, of: str) -> tuple[list[int] | str, list[int] | str]:
        """Which rows of an input raise alone: where plans are kept, which ask the ordinary way then, and ordinarily.

        What a row without a match would raise in a join is raised or not by how Spark plans it.
        """

        def kept(given: Given) -> pa.Table:
            try:
                return self.direct(given)
            except Exception as error:
                if not is_of_rows(error):
                    raise
                return self.ordinary(given)

        return self._found(kept, given, of), self._found(self.ordinary, given, of)

    def _found(self, compute: Callable[[Given], pa.Table], given: Given, of: str) -> list[int] | str:
        try:
            return sorted(
                culprits(
                    given[of].num_rows, lambda low, high: void(compute({**given, of: given[of].slice(low, high - low)}))
                )
            )
        except TooManyError:
            return "too many"

    def close(self) -> None:
        """It is not used any more."""
        self.plan.close()


def void(rows: pa.Table) -> None:
    """Take rows, and give nothing."""
    assert rows is not None
