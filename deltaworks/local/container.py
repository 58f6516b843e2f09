"""One part of the stack in the foreground, for a container: `python -m deltaworks.local.container run kafka`.

`run NAME` writes the settings files that the part needs and becomes its process; a step is a part that ends.
`ready NAME` ends with 0 when the part answers. What a part is, is said where the local stack says it, and
docker-compose.yml only names it. Airflow's image has none of the other parts' libraries, so each side loads its own.
"""

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from deltaworks.errors import DeltaworksError, StackError
from deltaworks.local import airflow
from deltaworks.local.part import Part, PartState, Probe, StackState, now
from deltaworks.local.private import private_folder
from deltaworks.settings import ROOT, Settings

DRIVER_HOST = "driver-host"
"""The agent that starts drivers; the local stack needs none, as its supervisors start them beside themselves."""


def part_of(settings: Settings, name: str) -> Part:
    """The part of this name. Raises StackError if there is none."""
    if name.startswith("airflow-"):
        known: tuple[Part, ...] = (airflow.migration(settings), *airflow.parts(settings))
    else:
        from deltaworks.local.stack import all_parts

        known = (*all_parts(settings), driver_host(settings))
    for part in known:
        if part.name == name:
            return part
    raise StackError(f"part {name}", "is not there", f"Known are {', '.join(part.name for part in known)}")


def driver_host(settings: Settings) -> Part:
    """The agent as a part."""
    return Part(
        name=DRIVER_HOST,
        of=DRIVER_HOST,
        command=(str(settings.spark_python), "-m", "deltaworks.supervise.agent"),
        folder=ROOT,
        log=settings.logs / f"{DRIVER_HOST}.log",
        after=("control", "control-databases", "topics"),
    )


def run(settings: Settings, name: str) -> None:
    """Become the part's process."""
    part = part_of(settings, name)
    for folder in (settings.run, settings.logs, settings.data / "config"):
        private_folder(folder)
    _write_config(settings, part)
    if part.probe is not None:
        _probe_file(settings, name).write_text(json.dumps(asdict(part.probe)))
    os.chdir(part.folder)
    os.execve(part.command[0], part.command, airflow.environment(settings))  # noqa: S606  # our own program, no shell


def ready(settings: Settings, name: str) -> bool:
    """Whether the part that runs in this container answers."""
    try:
        probe = Probe(**json.loads(_probe_file(settings, name).read_text()))
    except FileNotFoundError:
        return False
    return asyncio.run(_ask(probe)) is True


def state(settings: Settings) -> StackState:
    """What answers, of the parts that can be asked from here; what runs steps and keeps parts alive is Docker."""
    from deltaworks.local.stack import all_parts

    asked = [part for part in all_parts(settings) if part.probe is not None and part.of not in settings.processes]
    answers = asyncio.run(_ask_all([part.probe for part in asked if part.probe is not None]))
    parts = {
        part.name: PartState(
            name=part.name, of=part.of, step=False, state="ready" if answer else "unresponsive", since=now(),
            port=part.port,
        )
        for part, answer in zip(asked, answers, strict=True)
    }  # fmt: skip
    return StackState(written=now(), parts=parts)


def _write_config(settings: Settings, part: Part) -> None:
    if part.of == "airflow":
        airflow.write_config(settings)
    elif part.name in {"kafka", "kafka-files"}:
        from deltaworks.local import kafka

        kafka.write_config(settings)
    elif part.name == "connect":
        from deltaworks.local import connect, kafka

        kafka.write_config(settings)  # what it logs, and how, is one file for both
        connect.write_config(settings)


def _probe_file(settings: Settings, name: str) -> Path:
    return settings.run / f"probe-{name}.json"


class _NotOurs:
    """A connector that failed is started again by the supervisor of the local stack; a look changes nothing."""

    def due(self) -> bool:
        """Never."""
        return False

    def did(self, what: str) -> None:
        """Nothing was done."""


async def _ask(probe: Probe) -> bool | None:
    from deltaworks.local.probes import ask

    return await ask(probe, started=0.0, mending=_NotOurs())


async def _ask_all(probes: list[Probe]) -> list[bool | None]:
    return list(await asyncio.gather(*(_ask(probe) for probe in probes)))


def main(words: list[str]) -> int:
    """`run NAME` or `ready NAME`: 0 if it ended well or answers, 1 if it does not answer, 2 usage, 3 an error."""
    match words:
        case ["run", name]:
            try:
                run(Settings.load(), name)
            except DeltaworksError as error:
                sys.stderr.write(f"{name}: {error}\n")
            return 3
        case ["ready", name]:
            return 0 if ready(Settings.load(), name) else 1
        case _:
            sys.stderr.write("run NAME or ready NAME\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
