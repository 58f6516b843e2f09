"""The project's simulator of its sources, if it declares one: a part like the others, started when it is asked for."""

from deltaworks.local.part import Part
from deltaworks.settings import ROOT, Settings


def parts(settings: Settings) -> tuple[Part, ...]:
    """The simulator as `[source] simulator` in deltaworks.toml gives it: a Python module and its arguments."""
    if settings.source is None or not settings.source.simulator:
        return ()
    return (
        Part(
            name="simulator",
            of="simulator",
            command=(str(settings.spark_python), "-m", *settings.source.simulator),
            folder=ROOT,
            log=settings.logs / "simulator.log",
            after=("connector", "topics"),
        ),
    )
