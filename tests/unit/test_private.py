"""What is in the data folder is for the stack's user alone, whatever umask that user has."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaworks.local import postgres, stack
from deltaworks.local.private import open_log, private_folder, write_private
from deltaworks.settings import ROOT, Settings


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_folder_is_made_closed_or_closed_if_it_is_there(tmp_path: Path) -> None:
    """One that an earlier version made open is closed; what is in it stays."""
    there = tmp_path / "there"
    (there / "orders").mkdir(parents=True)

    private_folder(there)
    private_folder(tmp_path / "new")

    assert (mode(there), mode(tmp_path / "new")) == (0o700, 0o700)
    assert (there / "orders").is_dir()


def test_log_is_closed_and_goes_on_at_its_end(tmp_path: Path) -> None:
    """Also one that was open to others."""
    log = tmp_path / "app-shop.log"
    log.write_text("before, ")

    with open_log(log) as file:
        file.write(b"after")

    assert log.read_text() == "before, after"
    assert mode(log) == 0o600


def test_file_is_replaced_closed(tmp_path: Path) -> None:
    """Nobody can read it, not even while it is written."""
    path = tmp_path / "secret"
    path.write_text("old")

    write_private(path, "new")

    assert (path.read_text(), mode(path)) == ("new", 0o600)


def test_every_folder_of_the_data_is_closed_but_those_of_postgres(tmp_path: Path) -> None:
    """Rows and bytes are in the lake, in Kafka's logs, in Spark's scratch files; Postgres closes its own folders."""
    settings = Settings.load(ROOT, environment={}, data=tmp_path / "data")
    for name in ("lake", "kafka", "made-by-a-later-version", *postgres.FOLDERS):
        (settings.data / name).mkdir(parents=True)

    stack._prepare(settings)

    modes = {folder.name: mode(folder) for folder in settings.data.iterdir() if folder.is_dir()}
    assert {"lake", "kafka", "checkpoints", "spark", "logs", "run", "secrets", "reports"} <= {*modes}
    assert {name: found for name, found in modes.items() if found != 0o700} == dict.fromkeys(postgres.FOLDERS, 0o755)
    assert mode(settings.data) == 0o711, "Postgres' user passes through it"


def mode(path: Path) -> int:
    """Permissions of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)
