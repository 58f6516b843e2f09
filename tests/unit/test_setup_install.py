"""Set-up: what it takes over from the machine, when it does something, and what it says when it cannot."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks.local.install import Setup, _is_current, _stamp, from_pip, main
from deltaworks.settings import ROOT


def test_uv_is_told_what_pip_is_told() -> None:
    """Index, extra indexes, certificate and time-out come from pip's own settings, whatever file they stand in."""
    config = (
        "global.index-url='https://index.example/one'\n"
        ":env:.cert='/etc/ssl/own.pem'\n"
        "install.extra-index-url='\\nhttps://index.example/two\\nhttps://index.example/three'\n"
        ":env:.default-timeout='180'\n"
        "download.index-url='https://other.example'\n"
        "global.find-links='wheels'\n"
    )

    assert from_pip(config) == {
        "UV_DEFAULT_INDEX": "https://index.example/one",
        "SSL_CERT_FILE": "/etc/ssl/own.pem",
        "UV_INDEX": "https://index.example/two https://index.example/three",
        "UV_HTTP_TIMEOUT": "180",
    }


def test_environment_is_current_until_something_of_it_changes(tmp_path: Path) -> None:
    """New pins, a lost package, a lost stamp and a Python that is gone each make the environment be made anew."""
    setup = _made(tmp_path)
    assert _is_current(setup, "spark")

    pins = setup.requirements / "spark.txt"
    pins.write_text("b==2\n")
    assert not _is_current(setup, "spark")
    pins.write_text("a==1\n")

    package = next(setup.venvs.glob("spark/lib/python3*/site-packages/a-1.dist-info"))
    package.rmdir()
    assert not _is_current(setup, "spark")
    package.mkdir()
    assert _is_current(setup, "spark")

    python = setup.venvs / "spark/bin/python"
    python.unlink()
    python.symlink_to(tmp_path / "gone")
    assert not _is_current(setup, "spark")


def test_checkout_is_set_up() -> None:
    """bin/setup --check agrees that this checkout has what the pins say; so every test runs on the pinned versions."""
    ran = subprocess.run([ROOT / "bin/setup", "--check"], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_python_without_venv_is_told_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Debian splits venv off: the error names the package."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ensurepip" else name)
    monkeypatch.setattr("deltaworks.local.install.ROOT", tmp_path)

    code = main([], environment={})

    assert code == 3
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"has no module ensurepip. Install python{version}-venv" in capsys.readouterr().err


def test_set_up_needs_nothing_but_the_standard_library() -> None:
    """It runs on the Python of a fresh machine: isolated, without site-packages."""
    ran = subprocess.run([sys.executable, "-I", "-S", ROOT / "bin/setup", "--help"], capture_output=True, check=False)

    assert ran.returncode == 0, ran.stderr


def test_command_line_without_environment_names_the_next_step(tmp_path: Path) -> None:
    """bin/deltaworks and bin/test in a clone that was not set up end with one line."""
    (tmp_path / "bin").mkdir()
    for program in ("deltaworks", "test"):
        shutil.copy(ROOT / "bin" / program, tmp_path / "bin")

        ran = subprocess.run([tmp_path / "bin" / program], capture_output=True, text=True, check=False)

        assert ran.returncode == 3
        assert ran.stderr.count("\n") == 1
        assert 'Run "make setup"' in ran.stderr


def test_bare_make_lists_every_target() -> None:
    """The help is made of the comments beside the targets, so it cannot forget one."""
    makefile = (ROOT / "Makefile").read_text()
    targets = makefile.split(".PHONY:")[1].splitlines()[0].split()

    ran = subprocess.run(["make", "-C", str(ROOT), "--no-print-directory"], capture_output=True, text=True, check=True)

    assert targets
    assert [line.split()[1] for line in ran.stdout.splitlines() if line.startswith("  make ")] == targets


def _made(root: Path) -> Setup:
    """A set-up whose spark environment is made and stamped, with one package in it."""
    setup = Setup(root=root, environment={}, jar_cache=root / "cache", ivy_settings=None)
    setup.requirements.mkdir()
    (setup.requirements / "spark.txt").write_text("a==1\n")
    (setup.requirements / "build.txt").write_text("")
    venv = setup.venvs / "spark"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(os.path.realpath(sys.executable))
    (venv / f"lib/python3.{sys.version_info.minor}/site-packages/a-1.dist-info").mkdir(parents=True)
    (venv / ".current").write_text(_stamp(setup, "spark"))
    return setup
