"""What the chaos kit kills is the process that it names."""

import shutil
import subprocess
import sys
from pathlib import Path

from deltaworks import processes
from deltaworks.control import Store
from deltaworks.settings import ROOT, Settings
from tests.chaos.victims import Victim, is_java, kill
from tests.running_stack import wait_until

DRIVER = """
import subprocess, sys
java = sys.argv[1]
children = [subprocess.Popen([program, "60"]) for program in ("sleep", java, "sleep")]
print(*[child.pid for child in children], flush=True)
for child in children:
    child.wait()
"""


def test_jvm_is_known_from_a_recomputation_beside_it(store: Store, tmp_path: Path) -> None:
    """Both are the driver's children."""
    settings, java = Settings.load(ROOT, environment={}), tmp_path / "java"
    java.symlink_to(str(shutil.which("sleep")))
    call = [sys.executable, "-c", DRIVER, str(java)]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True, start_new_session=True) as driver:
        try:
            assert driver.stdout is not None
            before, jvm, after = map(int, driver.stdout.readline().split())
            wait_until(lambda: is_java(jvm), what="the stand-in for a JVM")
            started = processes.started(driver.pid)
            assert started is not None
            store.acquire("shop", owner="stands in", seconds=60, pid=driver.pid, process_started=started)
            assert kill(settings, store, Victim(name="shop", process="jvm")) == jvm
            wait_until(lambda: processes.started(jvm) is None, what="the JVM's end")
            assert processes.started(before) is not None
            assert processes.started(after) is not None
        finally:
            processes.kill_session(driver.pid)
