"""Keep Spark's own messages out of what a command prints for people and programs."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def jvm_log(log: Path) -> Iterator[None]:
    """A JVM that is started inside writes its standard error to the file, for as long as it lives."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def no_query_log() -> Iterator[None]:
    """Without PySpark's own log of failed analyses: it prints the JVM's trace beside the error that it raises."""
    loggers = [logging.getLogger(f"{kind}QueryContextLogger") for kind in ("DataFrame", "SQL")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
