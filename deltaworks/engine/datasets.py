"""pyarrow's datasets, without pandas: to load that takes as long as all else that a driver loads.

pyarrow looks for pandas when its first scalar is made, which is while datasets are loaded, to know its arrays from
others. Few processes ever have one: it is told that there is none, and looks again once somebody has loaded pandas.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _Pandas(MetaPathFinder):
    """Hides pandas while pyarrow looks for it, and lets pyarrow look again when it is loaded."""

    hidden = True

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname != "pandas":
            return None
        if self.hidden:
            raise ModuleNotFoundError(fullname)
        spec = PathFinder.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_tell(module: ModuleType) -> None:
                load(module)
                sys.meta_path.remove(self)
                _ = pa.lib._pandas_api.compat  # noqa: SLF001  # what makes pyarrow look again has no public name

            setattr(spec.loader, "exec_module", load_and_tell)  # noqa: B010  # of this one loader
        return spec


_pandas = _Pandas()
if "pandas" not in sys.modules:
    sys.meta_path.insert(0, _pandas)
import pyarrow as pa  # noqa: E402  # behind the finder
import pyarrow.dataset as ds  # noqa: E402, TID251  # behind the finder

_pandas.hidden = False

__all__ = ["ds"]
