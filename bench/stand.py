"""The stand: a project and a local stack of their own, on their own ports, in a scratch folder that goes afterwards."""

import shutil
import signal
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from deltaworks.cli.show import err
from deltaworks.errors import DeltaworksError, StackError
from deltaworks.local import stack
from deltaworks.settings import AppSettings, Settings
from shop.part import FIRST, part_of_shop

PARTS = ("control", "kafka")
PORT_FIRST = 26000
APP = "web"
_PORTS = tuple(name for name in Settings.names() if name.startswith("port_"))


@contextmanager
def stand(*, web: AppSettings, port_first: int, keep: bool) -> Iterator[Settings]:
    """Start control store and broker for a project whose app `web` is set so; see `scratch`."""
    with scratch(lambda data: settings_of(data, web=web, port_first=port_first), parts=PARTS, keep=keep) as settings:
        yield settings


@contextmanager
def scratch(settings_for: Callable[[Path], Settings], *, parts: Collection[str], keep: bool) -> Iterator[Settings]:
    """Start parts of a stack whose data is in a scratch folder; stop them whatever happens.

    `keep` leaves the folder (logs, tables) for a look. Raises StackError where there is no /proc to measure by.
    """
    if not Path("/proc/self/stat").exists():
        raise StackError("/proc", "is missing", "Run the benchmarks on Linux")
    data = Path(tempfile.mkdtemp(prefix="deltaworks-bench-"))
    settings = settings_for(data)
    try:
        stack.up(settings, parts=parts)
        yield settings
    finally:
        try:
            stack.down(settings)
        finally:
            if keep:
                err.print(f"kept {data}")
            else:
                shutil.rmtree(data, ignore_errors=True)


def ports_from(first: int) -> dict[str, int]:
    """A port for each part of a stack, from this one on."""
    return {port: first + place for place, port in enumerate(_PORTS)}


def settings_of(data: Path, *, web: AppSettings, port_first: int, name: str = "project") -> Settings:
    """Settings of the project data/name, which is written: the shop's first tables, with another app `web`.

    All projects of one data folder share its stack.
    """
    project = part_of_shop(data / name, *FIRST)
    shape = f"trigger_seconds = {web.trigger_seconds}\nrows_per_batch_max = {web.rows_per_batch_max}\n"
    declared = f'[apps.shop]\n\n[apps.{APP}]\n{shape}memory = "{web.memory}"\ncores = {web.cores}\n'
    (project / "deltaworks.toml").write_text(declared)
    return Settings.load(project, environment={}, data=data, **ports_from(port_first))


def run(measure: Callable[[], bool]) -> int:
    """Run a measurement, ended cleanly by Ctrl-C or SIGTERM; exit codes: 0 ok, 1 finding, 3 cannot, 130 interrupted."""

    def interrupt(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second one must not cut the cleaning up short
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return 0 if measure() else 1
    except DeltaworksError as error:
        err.print(str(error), style="red", soft_wrap=True, markup=False)
        return 3
    except KeyboardInterrupt:
        err.print("interrupted; everything is stopped")
        return 130
