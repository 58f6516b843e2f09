"""Spark for a command that computes tables again beside the lake: in a scratch lake, of which no file stays."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from deltaworks.engine.jvm_log import jvm_log
from deltaworks.engine.session import open_session
from deltaworks.engine.trimming import STAGED
from deltaworks.settings import AppSettings, Settings

NICENESS = 10
"""On a machine that is busy it gets a tenth of what the streams get, which are not to wait for it; else all of it."""


@contextmanager
def recomputing(
    settings: Settings, *, name: str, folder: Path | None = None
) -> Iterator[tuple[SparkSession, Settings]]:
    """Start Spark behind the streams, whose log is `<name>.log`; give it with settings whose lake is empty.

    That lake is in `folder`, which is empty; without one it goes at the end. Owners see by it that somebody reads the
    lake as it is now. The process stays behind the streams.
    """
    stand_behind()
    with ExitStack() as kept:
        if folder is None:
            beside = settings.data / STAGED  # not in /tmp: bronze is linked there, not copied
            beside.mkdir(parents=True, exist_ok=True)
            scratch = tempfile.TemporaryDirectory(prefix=f"{name}-", dir=beside, ignore_cleanup_errors=True)
            folder = Path(kept.enter_context(scratch))
        own = settings.changed(data=folder)
        with jvm_log(settings.logs / f"{name}.log"):
            spark = open_session(name=name, settings=own, app=AppSettings())
        kept.callback(spark.stop)
        yield spark, own


def stand_behind() -> None:
    """Have this process, and whatever it starts from here on, get out of the streams' way."""
    os.nice(max(0, NICENESS - os.nice(0)))
