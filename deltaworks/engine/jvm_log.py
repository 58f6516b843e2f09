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


def no_query_log() -> None:
    """From now on without PySpark's own log of each error: it quotes values, and prints the JVM's trace."""
    for kind in ("DataFrame", "SQL"):
        logging.getLogger(f"{kind}QueryContextLogger").disabled = True
