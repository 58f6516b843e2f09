"""A driver in a process of its own, as the supervisor starts it.

with at_work(settings, "web") as driver:
    ...
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deltaworks.control import Store
from deltaworks.settings import ROOT, Settings
from tests.running_stack import wait_until

SECONDS_MAX = 240


def started(settings: Settings, app: str) -> "subprocess.Popen[bytes]":
    """Start the driver of an app, in a process group of its own."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    with (settings.logs / f"app-{app}.log").open("ab") as log:
        driver = subprocess.Popen(
            [sys.executable, str(ROOT / "spark_apps/stream.py"), "--app", app, "--project", str(settings.project)],
            env=settings.inherited(), stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    time.sleep(0.5)  # a driver that cannot start at all has ended by now
    assert driver.poll() is None
    return driver


@contextmanager
def at_work(settings: Settings, app: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Give the driver of an app that is wanted, at work; none is left at the end."""
    with Store(settings.control_dsn()) as store:
        store.declare_apps(settings.apps)
        store.desire(app, "running", by="test", reason="a test")
        driver = started(settings, app)
        try:
            wait_until(lambda: _beats(store, app, driver.pid), what="the driver at work", seconds_max=SECONDS_MAX)
            yield driver
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()


def _beats(store: Store, app: str, pid: int) -> bool:
    lease, heartbeat = store.lease(app), store.heartbeat(app)
    if lease is None or heartbeat is None or lease.pid != pid:
        return False
    return heartbeat.epoch == lease.epoch and heartbeat.state == "running"
