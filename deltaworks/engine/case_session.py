"""Spark for a command that runs cases: the JVM's log in a file, a new lake for each run, nothing left behind."""

import logging
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from deltaworks.cases import Case
from deltaworks.catalog import Catalog
from deltaworks.engine.case_run import Beginnings, Way, run_case, ways
from deltaworks.engine.jvm_log import jvm_log
from deltaworks.engine.session import open_session
from deltaworks.errors import DeltaworksError
from deltaworks.settings import AppSettings, Settings

Run: TypeAlias = Callable[[Case], Mapping[str, tuple[str, ...]]]
"""Gives what was found otherwise than the case says, by the way in which it ran. Threads may call it at once."""
_FEW_ROWS = {"spark.sql.shuffle.partitions": "1", "spark.sql.autoBroadcastJoinThreshold": "-1"}
"""A task costs more than what it does to a few rows, and a broadcast is a job of its own."""


@contextmanager
def case_session(catalog: Catalog, settings: Settings) -> Iterator[Run]:
    """Start Spark and give the function that runs a case in all its ways; an error is a difference like others."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-cases-", ignore_cleanup_errors=True) as folder:
        own = settings.changed(data=Path(folder))
        # what an owner tells its log is no difference; without a handler Python prints it
        logging.getLogger("deltaworks").addHandler(logging.NullHandler())
        with jvm_log(settings.logs / "table-test.log"):
            spark = open_session(name="table-test", settings=own, app=AppSettings(), brief=True)

        beginnings = Beginnings(Path(tempfile.mkdtemp(dir=folder)))
        mine = threading.local()  # a thread's own settings of Spark; the JVM is one

        def run(case: Case, way: Way) -> tuple[str, ...]:
            if not hasattr(mine, "spark"):
                mine.spark = spark.newSession()
                for option, value in _FEW_ROWS.items():
                    mine.spark.conf.set(option, value)
            lake = own.changed(data=Path(tempfile.mkdtemp(dir=folder)))
            try:
                return run_case(case, way, catalog=catalog, settings=lake, spark=mine.spark, beginnings=beginnings)
            except Exception as error:  # noqa: BLE001  # whatever a transform raises fails its case, not the others
                return (_raised(error),)

        try:
            yield lambda case: {way: run(case, way) for way in ways(catalog[case.table])}
        finally:
            spark.stop()


def _raised(error: Exception) -> str:
    """An error as one line, without Spark's codes."""
    if isinstance(error, DeltaworksError):
        return str(error)
    first = (str(error).strip() or "no message").splitlines()[0]
    said = re.sub(r"^\[[A-Z0-9_.]+\] *| *SQLSTATE: \w+.*$", "", first)
    return f"raised {type(error).__name__}: {said}"
