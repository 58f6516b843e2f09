"""Which way a function of a table's transform is computed: by a plan that is kept, or Spark's ordinary way.

The plan decides, not the table's author: what cannot be kept, large rows, and whatever fails in the plan take the
ordinary way, with the same result.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from deltaworks.engine.phases import phase, went_directly, went_ordinarily
from deltaworks.engine.poison import is_of_rows, name_of
from deltaworks.engine.spark.direct_plan import DirectPlan, Function, planning_session
from deltaworks.engine.spark.internals import Internals, TooMuchResultError
from deltaworks.engine.spark.pushed_keys import PushedKeys
from deltaworks.engine.spark.refusals import NotDirectError

log = logging.getLogger("deltaworks.plans")
BYTES_MAX = 4 * 2**20
"""More rows than this are computed by tasks, with code that is compiled for them."""
OFF = "direct_plans is off"
PLANS_KEPT_MAX = 300
"""Of more plans than this one goes with each that is asked for, the one that was not used for longest..."""
UNUSED_SECONDS = 3600.0
"""...if that is so long ago: plans of transforms that were mended, and of other tables' cases..."""
PLANS_MOST = 600
"""...or there are more than this: each holds a file, and a process may have some thousand open."""
AGAIN_SECONDS = 600.0
"""What failed is planned anew after so long: memory or files that there were not enough of may be there again."""
Key = tuple[object, ...]
Make = Callable[[SparkSession, Internals], DirectPlan]


@dataclass(kw_only=True)
class Way:
    """How one function of one table is computed."""

    why_not: str | None = None
    """Why it takes the ordinary way; None while it need not."""
    again_at: float = math.inf
    """When that is looked at anew, by the monotonic clock."""
    plan: DirectPlan | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while it is planned."""
    pushed: dict[tuple[str, ...], PushedKeys] = field(default_factory=dict)
    """What decides these columns of the result, once that is known."""
    asked: dict[tuple[str, ...], float] = field(default_factory=dict)
    """Of which columns somebody finds that out, since when by the monotonic clock."""
    told: str | None = None
    """The last of what was told of that: it may be so each time."""
    used_at: float = 0.0
    """By the monotonic clock."""


class Plans:
    """The kept plans of a process, for all its flows: a table that is opened anew has its plan still."""

    def __init__(self) -> None:
        """Have none."""
        self._ways = OrderedDict[Key, Way]()
        self._lock = threading.Lock()
        self._context: SparkContext | None = None
        self._session: SparkSession | None = None
        self._internals: Internals | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._may_plan = threading.Event()
        self._may_plan.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Begin no plan ahead of its turn meanwhile: this has the processors, and all tables wait for it.

        What is asked for is planned all the same. Of one flow in a process.
        """
        self._may_plan.clear()
        try:
            yield
        finally:
            self._may_plan.set()

    def way(self, place: str, key: Key, make: Make, spark: SparkSession) -> Way:
        """The way of what has this key, planned now if it is not yet."""
        way = self._known((place, key), spark)
        with way.lock:
            if way.plan is None and (way.why_not is None or time.monotonic() >= way.again_at):
                self._make(way, place, make, spark)
        return way

    def begin(self, task: Callable[[], object], spark: SparkSession) -> None:
        """Do something beside the turn: plan what is about to be asked for. What it raises is told in the log."""
        context = spark.sparkContext

        def run() -> None:
            self._may_plan.wait()
            if self._context is context:  # else that Spark has been stopped meanwhile, and there is another
                try:
                    task()
                except Exception as error:  # noqa: BLE001  # the turn does without
                    log.warning("nothing was planned ahead: %s", name_of(error))

        with self._lock:
            self._follow(context)
            if self._threads is None:
                self._threads = ThreadPoolExecutor(1, thread_name_prefix="plans")
            self._threads.submit(run)

    def drop(self, way: Way, why: str) -> None:
        """Take the ordinary way from now on, for a while."""
        with way.lock:
            way.plan, way.why_not, way.again_at = None, why, time.monotonic() + AGAIN_SECONDS

    def _known(self, key: Key, spark: SparkSession) -> Way:
        with self._lock:
            self._follow(spark.sparkContext)
            if (way := self._ways.get(key)) is None:
                way = self._ways[key] = Way()
            self._ways.move_to_end(key)
            way.used_at = time.monotonic()
            first = next(iter(self._ways))
            unused = way.used_at - self._ways[first].used_at > UNUSED_SECONDS
            if len(self._ways) > (PLANS_KEPT_MAX if unused else PLANS_MOST):
                del self._ways[first]
            return way

    def _follow(self, context: SparkContext) -> None:
        """Another Spark knows nothing of the plans of the one before."""
        if self._context is not context:
            self._ways.clear()
            self._context, self._session, self._internals = context, None, None

    def _make(self, way: Way, place: str, make: Make, spark: SparkSession) -> None:
        before = way.why_not
        try:
            way.plan, way.why_not = make(*self._room(spark)), None
        except NotDirectError as error:
            way.why_not, way.again_at = str(error), time.monotonic() + AGAIN_SECONDS if error.passes else math.inf
            log.info("%s is computed in the ordinary way: %s", place, error)
        except Exception as error:  # noqa: BLE001  # the ordinary way says what is wrong, if anything is
            way.why_not, way.again_at = f"cannot be planned: {name_of(error)}", time.monotonic() + AGAIN_SECONDS
            if way.why_not != before:  # once: it may be so each time
                log.warning("%s is computed in the ordinary way for now: %s", place, way.why_not)

    def _room(self, spark: SparkSession) -> tuple[SparkSession, Internals]:
        with self._lock:
            if self._session is None or self._internals is None:
                self._internals = Internals(spark)
                self._session = planning_session(spark)
            return self._session, self._internals


PLANS = Plans()
"""Those of this process: there is one JVM."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A function of a table's transform over rows: as Arrow where a kept plan computes it, else as a DataFrame."""

    place: str
    """What it is called in messages: a table, or what of it."""
    code: str
    """Changes with its code: another one is planned anew."""
    inputs: Mapping[str, pa.Schema]
    function: Function
    enabled: bool = True

    @phase("compute")
    def plan(self, spark: SparkSession) -> str | None:
        """Plan it now, if that is not done; why it is computed in the ordinary way, None where it is not."""
        why_not = self._way(spark).why_not if self.enabled else OFF
        if why_not is not None:
            self._tell(why_not)
        return why_not

    @phase("compute")
    def compute(self, spark: SparkSession, rows: Mapping[str, pa.Table]) -> pa.Table | None:
        """The result over these rows of every input, None where it is to be computed in the ordinary way.

        So are rows that raise: there it is found out which do.
        """
        found = self._directly(spark, rows)
        if isinstance(found, str):
            self._tell(found)
            return None
        if not self._part:
            went_directly()
        return found

    def _directly(self, spark: SparkSession, rows: Mapping[str, pa.Table]) -> pa.Table | str:
        """The result, or why it is to be computed in the ordinary way."""
        if not self.enabled:
            return OFF
        if sum(one.nbytes for one in rows.values()) > BYTES_MAX:
            return f"more than {BYTES_MAX // 2**20} MiB of rows at once"
        way = self._way(spark)
        plan = way.plan
        if plan is None:
            return way.why_not or "its plan was dropped"
        try:
            return plan(rows)
        except TooMuchResultError:
            return "it gives too much at once"
        except Exception as error:  # noqa: BLE001  # the ordinary way says what is wrong, if anything is
            if is_of_rows(error):  # the ordinary way says which it is
                return f"a row raised {name_of(error)}"
            log.warning("%s is computed in the ordinary way for now: %s", self.place, name_of(error))
            PLANS.drop(way, why := f"its plan failed: {name_of(error)}")
            return why

    def _tell(self, why_not: str) -> None:
        """Tell whoever measures this turn."""
        went_ordinarily(why_not, part=self._part)

    @property
    def _part(self) -> str:
        """What of the table's transform it is; empty for all of it."""
        return self.place.partition(" ")[2]

    def plan_ahead(self, spark: SparkSession) -> None:
        """Plan it beside the turn, which waits for it if it comes to it meanwhile."""
        if self.enabled:
            PLANS.begin(lambda: self._way(spark), spark)

    def pushed_keys(self, spark: SparkSession, keys: pa.Schema) -> PushedKeys | None:
        """What of the inputs' rows decides these columns of the result; None while that is found out beside the turn.

        Until then, and where it cannot be found out, inputs are given whole.
        """
        way, names, now = self._way(spark), tuple(keys.names), time.monotonic()
        due = names not in way.pushed and now >= way.asked.get(names, -math.inf) + AGAIN_SECONDS
        if due and way.plan is not None:
            way.asked[names] = now
            PLANS.begin(lambda: self._ask(way, keys), spark)
        return way.pushed.get(names)

    def _ask(self, way: Way, keys: pa.Schema) -> None:
        if (plan := way.plan) is None:  # dropped meanwhile
            return
        names = tuple(keys.names)
        try:
            way.pushed[names] = plan.pushed_keys(keys)
        except Exception as error:  # noqa: BLE001  # its inputs are given whole then
            told = f"what of its inputs decides {', '.join(names)} is not found out: {name_of(error)}"
            if told != way.told:
                log.warning("%s: %s", self.place, told)
            way.told = told

    def _way(self, spark: SparkSession) -> Way:
        return PLANS.way(self.place, self._key, self._make, spark)

    @cached_property
    def _key(self) -> Key:
        inputs = tuple((name, tuple((f.name, str(f.type)) for f in schema)) for name, schema in self.inputs.items())
        return self.code, inputs

    def _make(self, session: SparkSession, internals: Internals) -> DirectPlan:
        return DirectPlan(session, internals, self.function, self.inputs)
