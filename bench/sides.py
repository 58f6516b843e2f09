"""The two sides: how each is started, asked to stop, and where its gold is."""

import signal
from pathlib import Path
from typing import ClassVar, Protocol

from bench.program import Program
from bench.stand import APP
from deltaworks.control import Store
from deltaworks.settings import ROOT, Settings
from deltaworks.supervise.launch import driver_environment
from shop.topic import TOPIC


class Side(Protocol):
    """One way to write the slice."""

    name: ClassVar[str]

    def gold(self, settings: Settings) -> Path:
        """Where its gold table is."""
        ...

    def start(self, settings: Settings) -> Program:
        """Start its driver."""
        ...

    def ask_to_stop(self, settings: Settings, program: Program) -> None:
        """Let the driver finish its batch and end."""
        ...


class Deltaworks:
    """The product's own driver of the app `web`."""

    name: ClassVar[str] = "deltaworks"

    def gold(self, settings: Settings) -> Path:
        """As everywhere in the product."""
        return settings.lake / "gold" / "page_views_per_minute"

    def start(self, settings: Settings) -> Program:
        """As the supervisor starts it: the app is wanted, the driver takes the lease itself."""
        with Store(settings.control_dsn()) as store:
            store.declare_apps([APP])
            store.desire(APP, "running", by="bench", reason="a measurement")
        return Program(self.name, driver_command(settings), settings=settings, environment=driver_environment(settings))

    def ask_to_stop(self, settings: Settings, program: Program) -> None:  # noqa: ARG002  # the store is asked, not it
        """Say in the control store that the app is not wanted any more."""
        with Store(settings.control_dsn()) as store:
            store.desire(APP, "stopped", by="bench", reason="a measurement")


class Chained:
    """chained.py, with the heap, cores and trigger of the app `web`."""

    name: ClassVar[str] = "chained"

    def __init__(self, *, dedupe: bool) -> None:
        """With `dedupe` copies are dropped, as the product does."""
        self.dedupe = dedupe

    def gold(self, settings: Settings) -> Path:
        """Beside the product's lake, which stays empty in its turns."""
        return settings.data / "chained" / "gold"

    def start(self, settings: Settings) -> Program:
        """Start chained.py with the product's Python and jars."""
        app = settings.app(APP)
        options = {
            "--bootstrap": settings.kafka,
            "--topic": TOPIC,
            "--lake": str(settings.data / "chained"),
            "--jars": str(settings.jars / "spark"),
            "--memory": app.memory,
            "--cores": str(app.cores),
            "--trigger-seconds": str(app.trigger_seconds),
        }
        command = [str(settings.spark_python), str(ROOT / "bench" / "chained.py")]
        command += [word for option in options.items() for word in option]
        return Program(self.name, [*command, *(["--dedupe"] if self.dedupe else [])], settings=settings)

    def ask_to_stop(self, settings: Settings, program: Program) -> None:  # noqa: ARG002  # it has no settings
        """Send SIGTERM."""
        program.signal(signal.SIGTERM)


def driver_command(settings: Settings, *options: str) -> list[str]:
    """The command of the product's driver."""
    script = str(ROOT / "spark_apps" / "stream.py")
    return [str(settings.spark_python), script, "--app", APP, "--project", str(settings.project), *options]
