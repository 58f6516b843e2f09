"""What the chaos kit kills is the process that it names."""

import subprocess
import sys

from deltaworks import processes
from deltaworks.control import Store
from deltaworks.settings import ROOT, Settings
from tests.chaos.victims import Victim, kill
from tests.running_stack import wait_until

DRIVER = """
import subprocess, sys
children = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=own)
            for own in (True, False, True)]
print(*[child.pid for child in children], flush=True)
for child in children:
    child.wait()
"""


def test_jvm_is_known_from_validations_beside_it(store: Store) -> None:
    """They are the driver's children too, each with a session of its own."""
    settings = Settings.load(ROOT, environment={})
    with subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        before, jvm, after = map(int, driver.stdout.readline().split())
        started = processes.started(driver.pid)
        assert started is not None
        store.acquire("shop", owner="stands in", seconds=60, pid=driver.pid, process_started=started)
        try:
            assert kill(settings, store, Victim(name="shop", process="jvm")) == jvm
            wait_until(lambda: processes.started(jvm) is None, what="the JVM's end")
            assert processes.started(before) is not None and processes.started(after) is not None
        finally:
            driver.kill()
            for pid in (before, after):
                processes.kill_session(pid)
