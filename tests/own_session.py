"""A program with a session in a process of its own: for what the JVM has done, or said, since it began."""

import subprocess
import sys
from pathlib import Path

from deltaworks.settings import ROOT

_SESSION = """
import sys
from pathlib import Path

from deltaworks.engine.session import open_session
from deltaworks.settings import ROOT, AppSettings, Settings

settings = Settings.load(ROOT, environment={}, data=Path(sys.argv[1]))
spark = open_session(name="own", settings=settings, app=AppSettings())
"""
_SECONDS_MAX = 120


def run_with_session(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it with `spark`, and with the folder as `sys.argv[1]`; raises CalledProcessError where it fails."""
    command = [sys.executable, "-c", _SESSION + program, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_SECONDS_MAX, check=True)
