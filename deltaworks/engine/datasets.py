"""pyarrow's datasets, of Delta tables too, without pandas: to load that takes as long as all else that a driver loads.

pyarrow looks for pandas when its first scalar is made, which is while datasets are loaded, to know its arrays from
others. Few processes ever have one: it is told that there is none, and looks again once somebody has loaded pandas.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlparse
from urllib.request import url2pathname

if TYPE_CHECKING:
    import deltalake


class _Loader(SourceFileLoader):
    """Loads pandas, and lets pyarrow look for it again."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, _Finder)]
        pa.table({}).to_pandas()


class _Finder(MetaPathFinder):
    """Finds no pandas while it is hidden, and later as ever."""

    hidden = True

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname != "pandas":
            return None
        if self.hidden:
            raise ModuleNotFoundError(fullname)
        spec = PathFinder.find_spec(fullname)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


@contextmanager
def _without_pandas() -> Iterator[None]:
    finder = _Finder()
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.hidden = False


with _without_pandas():
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow import fs

__all__ = ["dataset_of", "ds"]


def dataset_of(table: "deltalake.DeltaTable") -> ds.Dataset:
    """The rows of a table as it was opened, whose files Arrow opens itself. Local disk is assumed.

    delta-rs would have it ask a file system in Python. Arrow asks on threads of its own, with a lock in hand that a
    reader's start waits for; whoever starts one has Python's lock in hand, so now and then both wait for ever.
    """
    folder = url2pathname(urlparse(table.table_uri).path)
    return table.to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(folder, fs.LocalFileSystem()))
