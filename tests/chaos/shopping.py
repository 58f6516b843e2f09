"""The simulator at work in the background: a steady rate, with views twice, late, out of order and malformed."""

import json
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from deltaworks import processes
from deltaworks.errors import StackError
from deltaworks.settings import ROOT, Settings

_RATES = ("--rate", "30", "--order-rate", "1")
_FAULTS = ("--duplicates", "0.02", "--out-of-order", "0.05", "--late", "0.05", "--malformed", "0.01")
_PATIENCE_SECONDS = 300.0  # longer than any part may be away, so that nothing it did is in doubt


class Shopping:
    """Started when entered; killed when left, unless it was stopped in good order before."""

    def __init__(self, settings: Settings, *, seed: int, options: Sequence[str] = ()) -> None:
        """Prepare; `options` are more of the simulator's own."""
        self._log = settings.logs / "simulator.log"
        self._settings = settings
        self._command = [str(settings.spark_python), "-m", "shop.simulate", "--seed", str(seed), *_RATES, *_FAULTS]
        self._command += ["--patience", f"{_PATIENCE_SECONDS:g}", "--json", *options]

    def __enter__(self) -> Self:
        """Start it in a session of its own: a Ctrl-C is for us, who stop it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._settings.inherited(), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, start_new_session=True, text=True,
            )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, whatever it does."""
        processes.kill_session(self._process.pid)
        self._process.communicate()

    def must_go_on(self) -> None:
        """Raise StackError if it has ended: then the kills met a shop without customers."""
        if self._process.poll() is not None:
            raise StackError("the simulator", f"ended with code {self._process.returncode}", f"See {self._log}")

    def stop(self) -> dict[str, Any]:
        """Stop it in good order; returns its totals. All it sent is acknowledged then."""
        self._process.terminate()
        text, _ = self._process.communicate(timeout=_PATIENCE_SECONDS)
        if self._process.returncode:
            raise StackError("the simulator", f"ended with code {self._process.returncode}", f"See {self._log}")
        totals: dict[str, Any] = json.loads(text)
        return totals
