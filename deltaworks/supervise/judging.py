"""A suite that is judged by `deltaworks quality run`, as a process of this machine."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any

from deltaworks import processes
from deltaworks.settings import ROOT, Settings
from deltaworks.supervise.launch import driver_environment

JUDGE_SECONDS_MAX = 3600.0
"""So long a suite may be judged; then nobody knows."""
_ERRORS_MAX = 2_000
"""So many characters of what went wrong are told."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be judged: a table's suite, for closed days or for the night, or all of it."""

    table: str
    days: Sequence[str] = ()
    night: bool = False

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Wanted":
        """The same from JSON."""
        return cls(table=str(arguments["table"]), days=tuple(map(str, arguments["days"])), night=arguments["night"])

    def command(self, settings: Settings) -> list[str]:
        """That of a person."""
        command = [str(settings.spark_python), "-m", "deltaworks.cli", "--project", str(settings.project)]
        days = [part for day in self.days for part in ("--day", day)]
        return [*command, "quality", "run", self.table, "--json", *days, *(["--night"] if self.night else [])]


@dataclass(frozen=True, kw_only=True)
class Said:
    """What it said in the end: the outcome as JSON, or nothing, and its errors."""

    outcome: str
    errors: str


class Judging:
    """One that was begun here."""

    def __init__(self, settings: Settings, wanted: Wanted) -> None:
        """Begin it; raises OSError where no process can be started."""
        self._said: Said | None = None
        with ExitStack() as files:
            self._out, self._errors = files.enter_context(TemporaryFile()), files.enter_context(TemporaryFile())
            self.process = subprocess.Popen(
                wanted.command(settings), cwd=ROOT, env=driver_environment(settings), stdin=subprocess.DEVNULL,
                stdout=self._out, stderr=self._errors, start_new_session=True,
            )  # fmt: skip
            self._files = files.pop_all()  # open for as long as it runs

    def poll(self) -> Said | None:
        """What it said; None while it is at it."""
        if self._said is None and self.process.poll() is not None:
            with self._files:
                self._said = Said(outcome=_text(self._out), errors=_text(self._errors)[-_ERRORS_MAX:])
        return self._said

    def end(self) -> None:
        """Kill it, with its JVM, if it is there still."""
        if self.process.poll() is None:
            processes.kill_session(self.process.pid)
            self.process.wait()
        self.poll()  # which closes its files


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()
