"""Where the JVM's own log goes when a command starts Spark and prints for people or programs."""

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
