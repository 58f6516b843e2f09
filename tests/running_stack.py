"""A local stack for tests: the real parts on free ports, its data in a scratch folder, nothing left at the end.

    with running_stack(parts=("kafka",)) as settings:
        ...

`stack/conftest.py` keeps one for the whole session and starts further parts of it when a test asks for them.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from deltaworks import processes
from deltaworks.local import stack
from deltaworks.local.part import UP, PartState
from deltaworks.settings import ROOT, Settings
from tests.ports import free_ports

START_SECONDS_MAX = 240.0  # the whole stack takes 30 s; the rest is for a busy machine


@contextmanager
def scratch_settings(project: Path | None = None) -> Iterator[Settings]:
    """Settings of a stack that was never started; its data folder goes at the end.

    Without a project: the shop's database, connector and topics, but no DAGs, which would start Spark drivers.
    Not in pytest's own scratch folder: that one is closed to user nobody, as whom root's Postgres runs.
    """
    data = Path(tempfile.mkdtemp(prefix="deltaworks-"))
    try:
        found = project if project is not None else _shop_without_dags(data / "project")
        yield load_scratch(found, data=data)
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def running_stack(*, parts: Collection[str], project: Path | None = None) -> Iterator[Settings]:
    """Start parts, give their settings, stop them, and look that no process is left; see `scratch_settings`."""
    with scratch_settings(project) as settings:
        try:
            stack.up(settings, parts=parts, seconds_max=START_SECONDS_MAX)
            yield settings
        finally:
            stack.down(settings)
        assert not (left := left_over(settings)), f"left over: {left}"


def connector_for(*tables: str) -> str:
    """The shop's connector, as it is, for other tables of the source, which has none for signals."""
    declared = json.loads((ROOT / "shop" / "connector.json").read_text())
    del declared["config"]["signal.data.collection"]
    names = [f"public.{table}" for table in tables]
    declared["config"]["snapshot.include.collection.list"] = ",".join(names)
    declared["config"]["table.include.list"] = ",".join([*names, "public.heartbeat"])
    return json.dumps(declared, indent=2)


def load_scratch(project: Path, *, data: Path) -> Settings:
    """Settings of a project with this data folder and free ports, whatever the environment says."""
    names = Settings.load(project, environment={}).ports
    ports = zip(names, free_ports(len(names)), strict=True)
    environment = {f"DELTAWORKS_{name.upper()}": str(port) for name, port in ports}
    return Settings.load(project, environment=environment, data=data)


def left_over(settings: Settings) -> list[str]:
    """Processes that work in the data folder or name it in their command line: found without our own records.

    The caller and its parents are left out: their command line may name the folder too.
    """
    data, every = str(settings.data), {process.pid: process for process in processes.table()}
    found, own = [], os.getpid()
    while own in every:
        own = every.pop(own).parent
    for process in every.values():
        if process.zombie:
            continue
        command = processes.command_of(process.pid, length_max=100_000)
        if data in command or _folder_of(process.pid).startswith(data):
            found.append(f"{process.pid} {command[:200]}")
    return found


def part(settings: Settings, name: str) -> PartState:
    """What the supervisor knows of a part."""
    return stack.state(settings).parts[name]


def is_back(settings: Settings, name: str, killed: int | None) -> bool:
    """Whether a part is ready with another process, and no step is under way."""
    found = stack.state(settings)
    one = found.parts[name]
    return one.state == "ready" and one.pid != killed and all(other.state in UP for other in found.parts.values())


def wait_until(true: Callable[[], bool], *, what: str, seconds_max: float = START_SECONDS_MAX) -> float:
    """Wait until something is true; returns the seconds that it took.

    A look that takes long, into a lake or at Airflow's REST, is taken less often: what is waited for needs the machine.
    """
    began = looked = time.monotonic()
    while not true():
        took = time.monotonic() - looked
        assert looked + took - began < seconds_max, f"not within {seconds_max:g} s: {what}"
        time.sleep(min(max(0.05, 4 * took), 5))  # nobody tells; a fifth of the time at most is spent on looking
        looked = time.monotonic()
    return time.monotonic() - began


def _shop_without_dags(project: Path) -> Path:
    (project / "dags").mkdir(parents=True)
    source = f'[source]\nschema = "{ROOT}/shop/schema.sql"\nconnector = "{ROOT}/shop/connector.json"\n'
    (project / "deltaworks.toml").write_text(source)
    shutil.copy(ROOT / "topics.toml", project)
    return project


def _folder_of(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""
