"""Import modules while other packages cannot be imported: blocked_import.py --never pyspark NAME_OR_PATH..."""

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class Blocker:
    """A finder that refuses packages; it is asked before all others."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:  # noqa: ARG002  # the finders' protocol
        """Raise for a refused package, leave every other to the real finders."""
        if any(name == package or name.startswith(f"{package}.") for package in self.packages):
            raise ModuleNotFoundError(f"wall: {name} is not to be imported here", name=name)
        return None


def main() -> None:
    """Import every module named, and print how many."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--never", action="append", default=[])
    parser.add_argument("modules", nargs="+")
    asked = parser.parse_args()
    sys.meta_path.insert(0, Blocker(asked.never))
    for name in asked.modules:
        if name.endswith(".py"):
            _load(name)
        else:
            importlib.import_module(name)
    sys.stdout.write(f"imported {len(asked.modules)}\n")


def _load(path: str) -> None:
    """Load a file by path, as the catalog loads tables and Airflow loads DAGs."""
    spec = importlib.util.spec_from_file_location(path.removesuffix(".py").replace("/", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "__main__":
    main()
