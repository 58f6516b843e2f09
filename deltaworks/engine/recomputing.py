"""Spark for a command that computes tables again beside the lake: a scratch lake of its own, nothing left behind."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from deltaworks.engine.jvm_log import jvm_log, no_query_log
from deltaworks.engine.session import open_session
from deltaworks.settings import AppSettings, Settings


@contextmanager
def recomputing(settings: Settings, *, name: str) -> Iterator[tuple[SparkSession, Settings]]:
    """Start Spark, whose log is `<name>.log`; give it with settings whose lake is empty and goes at the end."""
    # beside the lake, not in /tmp: bronze is linked there, not copied
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=settings.data, ignore_cleanup_errors=True) as folder:
        own = settings.changed(data=Path(folder))
        with jvm_log(settings.logs / f"{name}.log"):
            spark = open_session(name=name, settings=own, app=AppSettings())
        try:
            with no_query_log():
                yield spark, own
        finally:
            spark.stop()
