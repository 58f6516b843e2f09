"""The walls: which part must not import which package, and why. The one list that the tests of the walls read."""

import dataclasses
from pathlib import Path

from tests.tidy.repository import files

_BOTH = ("pyspark", "airflow")
_ABOVE_WORDS = (
    "deltaworks.catalog",
    "deltaworks.cli",
    "deltaworks.control",
    "deltaworks.engine",
    "deltaworks.local",
    "deltaworks.query",
    "deltaworks.settings",
    "deltaworks.supervise",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wall:
    """One part of the code and what it never imports."""

    part: str  # pattern of files, see repository.files
    never: tuple[str, ...]
    why: str
    python: str = "spark"  # environment that runs this part
    ruff: tuple[str, ...] = ()  # of `never`, what Ruff refuses there too

    def files(self) -> tuple[Path, ...]:
        """The Python files of this part."""
        return tuple(path for path in files(self.part) if path.suffix == ".py")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate:
    """Files that may import these packages and nothing else."""

    part: str
    only: tuple[str, ...]
    why: str

    def files(self) -> tuple[Path, ...]:
        """The Python files of this part."""
        return files(self.part)


WALLS = (
    Wall(part="deltaworks/*.py", never=_BOTH, ruff=_BOTH, why="both environments import it"),
    Wall(
        part="deltaworks/words/**",
        never=(*_BOTH, *_ABOVE_WORDS),
        ruff=_BOTH,
        why="words are plain values: everything else is built on them",
    ),
    Wall(
        part="deltaworks/quality/**",
        never=(*_BOTH, "great_expectations", *_ABOVE_WORDS),
        ruff=_BOTH,
        why="the catalog, the driver and Spark's Python workers judge by the same rules, without Great Expectations",
    ),
    Wall(
        part="deltaworks/catalog/**",
        never=(
            *_BOTH,
            "deltaworks.cli",
            "deltaworks.control",
            "deltaworks.engine",
            "deltaworks.local",
            "deltaworks.supervise",
        ),
        ruff=_BOTH,
        why="both environments load the tables, in a second",
    ),
    Wall(
        part="deltaworks/control/**",
        never=(*_BOTH, "deltaworks.cli", "deltaworks.engine", "deltaworks.local", "deltaworks.supervise"),
        ruff=_BOTH,
        why="both environments import it, and it stands below what uses it",
    ),
    Wall(
        part="deltaworks/query/**",
        never=(*_BOTH, *(name for name in _ABOVE_WORDS if name != "deltaworks.query")),
        ruff=_BOTH,
        why="the process that answers knows SQL and nothing of tables, and starts in no time",
    ),
    Wall(
        part="deltaworks/local/**",
        never=(*_BOTH, "deltaworks.engine"),
        ruff=_BOTH,
        why="the local stack starts programs, it does not run Spark or DAGs itself",
    ),
    Wall(part="deltaworks/cli/**", never=_BOTH, ruff=_BOTH, why="it starts in no time"),
    Wall(
        part="deltaworks/engine/**",
        never=("airflow", "deltaworks.cli", "deltaworks.local", "deltaworks.supervise"),
        ruff=("airflow", "deltaworks.supervise"),
        why="the engine runs without Airflow, and whoever started Kafka and Postgres",
    ),
    Wall(part="deltaworks/engine/parse.py", never=_BOTH, why="it runs in the driver and in Spark's Python workers"),
    Wall(part="deltaworks/engine/parsing/**", never=_BOTH, why="it runs in the driver and in Spark's Python workers"),
    Wall(
        part="deltaworks/validation/**",
        never=("airflow", "deltaworks.cli", "deltaworks.supervise"),
        ruff=("airflow", "deltaworks.supervise"),
        why="what runs Great Expectations is a process that others start",
    ),
    Wall(
        part="deltaworks/supervise/**",
        never=("pyspark", "deltaworks.cli", "deltaworks.engine"),
        ruff=("pyspark", "deltaworks.engine"),
        why="Airflow's environment has no Spark",
        python="airflow",
    ),
    Wall(
        part="dags/**",
        never=("pyspark", "deltaworks.cli", "deltaworks.engine"),
        ruff=("pyspark", "deltaworks.engine"),
        why="Airflow's environment has no Spark",
        python="airflow",
    ),
    Wall(
        part="spark_apps/**",
        never=("airflow", "deltaworks.supervise"),
        ruff=("airflow", "deltaworks.supervise"),
        why="Spark apps run without Airflow",
    ),
    Wall(part="shop/**", never=_BOTH, ruff=_BOTH, why="the shop does not know what reads its data"),
    Wall(part="*.py", never=("dags",), ruff=("dags",), why="Airflow parses dags/ by path, nothing imports it"),
)
GATES = (
    Gate(
        part="tables/*/*/table.py",
        only=("deltaworks.words",),
        why="a declaration is plain values, readable in a second without a JVM",
    ),
    Gate(
        part="tables/*/*/transform.py",
        only=("pyspark.sql", "deltaworks.words", "tables.shared"),
        why="a transform is pure: DataFrames in, DataFrame out",
    ),
)
