"""The stack of the drill: the project tests/bank with Airflow, its lake on a small disk of its own if we are root."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltaworks.control import Store
from deltaworks.local import stack
from deltaworks.local.stack import SERVICES
from deltaworks.settings import ROOT, Settings
from tests.running_stack import START_SECONDS_MAX, connector_for, left_over, load_scratch

PROJECT = ROOT / "tests" / "bank"
DISK_BYTES = 2**30


@contextmanager
def running_bank() -> Iterator[Settings]:
    """Start it, want its app running, stop it, look that nothing is left; after a failure its folder stays."""
    data = Path(tempfile.mkdtemp(prefix="deltaworks-chaos-"))
    settings = load_scratch(_project(data / "project"), data=data)
    with _small_disk(settings):
        try:
            stack.up(settings, parts=SERVICES, seconds_max=START_SECONDS_MAX)
            with Store(settings.control_dsn()) as store:
                store.declare_apps(settings.apps)
                store.desire("bank", "running", by="chaos", reason="a drill")
            yield settings
        finally:
            stack.down(settings)
    assert not (left := left_over(settings)), f"left over: {left}"
    shutil.rmtree(data, ignore_errors=True)


def _project(folder: Path) -> Path:
    shutil.copytree(PROJECT, folder)
    (folder / "dags").mkdir()
    shutil.copy(ROOT / "dags" / "streams.py", folder / "dags")
    (folder / "connector.json").write_text(connector_for("transfers"))
    return folder


@contextmanager
def _small_disk(settings: Settings) -> Iterator[None]:
    """An ext4 file system in a file, for the lake alone; without root the lake stays where it is."""
    image, made = settings.data / "lake.img", False
    settings.lake.mkdir(mode=0o700)
    if os.geteuid() == 0:
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        made = all(
            subprocess.run(command, capture_output=True, check=False).returncode == 0
            for command in (
                ["mkfs.ext4", "-q", "-m", "0", "-i", "4096", str(image)],  # many small files, nothing kept for root
                ["mount", "-o", "loop", str(image), str(settings.lake)],
            )
        )
    try:
        yield
    finally:
        if made:
            subprocess.run(["umount", str(settings.lake)], check=True)
