"""What tests of launching share: settings whose control store is a scratch one and whose driver is a stand-in."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

from deltaworks import processes
from deltaworks.control import Store
from deltaworks.settings import ROOT, Settings
from deltaworks.supervise import launch

STAND_IN = Path(__file__).parent / "airflow" / "stand_in_driver.py"


@contextmanager
def scratch_project(postgres: str, port: int, folder: Path) -> Iterator[Settings]:
    """Give a project with the shop's tables, a fresh control store and the stand-in as driver; kills what it left.

    `postgres` is the superuser's address of a scratch server on `port`.
    """
    data, project = folder / "data", folder / "project"
    project.mkdir()
    for name in ("deltaworks.toml", "topics.toml"):
        shutil.copy(ROOT / name, project)
    for name in ("tables", "expectations"):
        (project / name).symlink_to(ROOT / name)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    python.chmod(0o755)
    loaded = Settings.load(project, environment={}, data=data, spark_python=python)
    settings = control_of(postgres, port, loaded)
    try:
        yield settings
    finally:
        with Store(settings.control_dsn()) as store:
            for app in store.apps():
                launch.kill(settings, store, app.name)


@contextmanager
def wanting_store(settings: Settings) -> Iterator[Store]:
    """Give the project's control store, in which both apps are wanted."""
    with Store(settings.control_dsn()) as store:
        for app in ("shop", "web"):
            store.desire(app, "running", by="test", reason="a test")
        yield store


def control_of(postgres: str, port: int, settings: Settings) -> Settings:
    """Give the settings with a fresh control store that has the apps `shop` and `web`, on the server as above."""
    settings.secrets.mkdir(parents=True)
    (settings.secrets / "deltaworks").write_text("sesame")
    _fresh_database(postgres)
    settings = settings.changed(port_control=port)
    with Store(settings.control_dsn()) as store:
        store.migrate()
        store.declare_apps(["shop", "web"])
    return settings


def run_in_this_session(settings: Settings, app: str) -> "subprocess.Popen[bytes]":
    """Start a driver as a person's shell does (`deltaworks run APP --drain`): it leads no session."""
    command = [str(settings.spark_python), "ignored", "--app", app, "--project", str(settings.project)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(launch.driver_environment(settings)))


def wait_for(what: Callable[[], bool], *, seconds_max: float = 120) -> None:
    """Wait until something is true; fails when it does not come to be."""
    deadline = time.monotonic() + seconds_max
    while not what():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.05)


def wait_owned(store: Store, app: str, pid: int) -> None:
    """Wait until a driver has its lease and was heard."""

    def owned() -> bool:
        lease, heartbeat = store.lease(app), store.heartbeat(app)
        return lease is not None and lease.pid == pid and heartbeat is not None and heartbeat.epoch == lease.epoch

    wait_for(owned)


def kill_leader(pid: int) -> None:
    """Kill the driver's process alone, as a fault would, and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: processes.started(pid) is None)


def _fresh_database(postgres: str) -> None:
    """Make the role and the empty database that the settings expect; the server is one test session's."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("drop database if exists deltaworks with (force)")
        connection.execute("drop role if exists deltaworks")
        connection.execute(sql.SQL("create role deltaworks login password {}").format(sql.Literal("sesame")))
        connection.execute("create database deltaworks owner deltaworks")
