"""The steps that make the parts usable: each can be run any number of times.

Run one with `python -m deltaworks.local.steps NAME`; the settings come from the environment.
"""

import sys
from collections.abc import Callable

from deltaworks.errors import DeltaworksError
from deltaworks.local.part import Part
from deltaworks.settings import ROOT, Settings

NEEDS_A_PERSON = 3
Step = Callable[[Settings], None]


def _source_files(settings: Settings) -> None:
    from deltaworks.local.postgres import create_cluster

    create_cluster(settings, "source")


def _control_files(settings: Settings) -> None:
    from deltaworks.local.postgres import create_cluster

    create_cluster(settings, "control")


def _source_database(settings: Settings) -> None:
    from deltaworks.local.postgres import apply_schema, create_databases

    create_databases(settings, "source")
    apply_schema(settings)


def _control_databases(settings: Settings) -> None:
    from deltaworks.control import Store
    from deltaworks.local.postgres import create_databases
    from deltaworks.supervise.launch import resume_all

    create_databases(settings, "control")
    with Store(settings.control_dsn()) as store:
        store.migrate()
    resume_all(settings)


def _kafka_files(settings: Settings) -> None:
    from deltaworks.local.kafka import format_storage

    format_storage(settings)


def _topics(settings: Settings) -> None:
    from deltaworks.local.kafka import create_topics

    create_topics(settings)


def _connector(settings: Settings) -> None:
    from deltaworks.local.connect import register_connector

    register_connector(settings)


# each step imports what it needs: the broker's step has no use for a database driver
_STEPS: dict[str, Step] = {
    "source-files": _source_files,
    "source-database": _source_database,
    "control-files": _control_files,
    "control-databases": _control_databases,
    "kafka-files": _kafka_files,
    "topics": _topics,
    "connector": _connector,
}
NAMES = frozenset(_STEPS)


def parts(settings: Settings) -> tuple[Part, ...]:
    """The steps as parts for the supervisor."""
    return (
        _part(settings, "source-files", of="source", after=()),
        _part(settings, "source-database", of="source", after=("source",), again=True),
        _part(settings, "control-files", of="control", after=()),
        _part(settings, "control-databases", of="control", after=("control",)),
        _part(settings, "kafka-files", of="kafka", after=()),
        _part(settings, "topics", of="kafka", after=("kafka",), again=True),
        *((_connector_part(settings),) if settings.source is not None else ()),
    )


def _connector_part(settings: Settings) -> Part:
    return _part(settings, "connector", of="connect", after=("connect", "topics", "source-database"), again=True)


def _part(settings: Settings, name: str, *, of: str, after: tuple[str, ...], again: bool = False) -> Part:
    return Part(
        name=name,
        of=of,
        step=True,
        again=again,
        command=(str(settings.spark_python), "-m", "deltaworks.local.steps", name),
        folder=ROOT,
        log=settings.logs / "steps.log",
        after=after,
    )


def main(name: str) -> int:
    """Run one step: 0 if it ended well, 3 after an expected error, which a person has to mend."""
    try:
        _STEPS[name](Settings.load())
    except DeltaworksError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return NEEDS_A_PERSON
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
