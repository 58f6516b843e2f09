"""Checkouts of the product, this one or another revision's. Each is used through its own programs only."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deltaworks.cli.show import err
from deltaworks.errors import StackError
from deltaworks.local import jars
from deltaworks.settings import ROOT, Settings

_PREFIX = "DELTAWORKS_"
_UNWANTED = ("PYTHONDONTWRITEBYTECODE",)
"""Where this is set, each process of a checkout that nobody has compiled compiles all that it imports."""
_PINS = ("requirements/jars.sha256", "requirements/ivy.xml")
_PORTS = "import json; from deltaworks.settings import Settings; print(json.dumps(list(Settings.load().ports)))"


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A folder with the product, set up."""

    name: str
    folder: Path

    @property
    def python(self) -> Path:
        """The Python that its engine and its simulator run with."""
        return self.folder / ".venv/spark/bin/python"

    def ports(self) -> list[str]:
        """What it calls its ports, those of its project's processes too."""
        return list(json.loads(self.run(str(self.python), "-c", _PORTS, environment=own_environment())))

    def compile(self) -> None:
        """Compile all its Python, packages included: one that was used before would have an advantage."""
        environment, compiles = own_environment(), ("-m", "compileall", "-q", "-j", "0")
        for python in sorted((self.folder / ".venv").glob("*/bin/python")):
            packages = str(python.parents[1] / "lib")
            # some packages have templates that are no Python: it ends with 1 then
            self.run(str(python), *compiles, packages, environment=environment, fine=(0, 1))
        own = [str(path) for path in self.folder.iterdir() if path.suffix == ".py" or _is_own(path)]
        self.run(str(self.python), *compiles, *own, environment=environment)

    def run(self, *command: str, environment: Mapping[str, str], fine: Collection[int] = (0,)) -> str:
        """Run a program in its folder, and return what it printed; raises StackError if its exit code is not fine."""
        ran = subprocess.run(
            command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if ran.returncode not in fine:
            said = (ran.stderr.strip() or ran.stdout.strip() or "nothing").splitlines()
            place = f"{Path(command[0]).name} {' '.join(command[1:3])}".strip()
            finding = f"ended with code {ran.returncode} in {self.name}, and said last: {said[-1][:500]}"
            raise StackError(place, finding, "Run it there, or run again with --keep and read the logs")
        return ran.stdout


def own_environment() -> dict[str, str]:
    """This process's environment without any setting of the product: they mean this checkout, or this user's stack."""
    inherited = Settings.load(ROOT, environment={}).inherited()
    return {name: value for name, value in inherited.items() if not name.startswith(_PREFIX) and name not in _UNWANTED}


def _is_own(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def working_tree() -> Checkout:
    """Return this checkout as it is, with what is not committed."""
    return Checkout(name="working tree", folder=ROOT)


@contextmanager
def checkouts(against: str | None, *, keep: bool) -> Iterator[list[Checkout]]:
    """The checkouts to measure, this one last; another revision is in a scratch folder meanwhile, or is a folder.

    What is compared is compiled. Raises StackError.
    """
    if against is None:
        yield [working_tree()]
        return
    if (Path(against) / "bin/deltaworks").is_file():
        folder = Path(against).resolve()
        yield _compiled(Checkout(name=folder.name, folder=folder), working_tree())
        return
    scratch = Path(tempfile.mkdtemp(prefix="deltaworks-revision-"))
    scratch.chmod(0o711)  # Postgres has its own user, and its binaries are in there
    try:
        with worktree(against, folder=scratch / "checkout", keep=keep) as other:
            yield _compiled(other, working_tree())
    finally:
        if not keep:
            shutil.rmtree(scratch, ignore_errors=True)


def _compiled(*compared: Checkout) -> list[Checkout]:
    for checkout in compared:
        checkout.compile()
    return list(compared)


@contextmanager
def worktree(revision: str, *, folder: Path, keep: bool) -> Iterator[Checkout]:
    """A revision of this repository in a folder, set up there; taken away again unless `keep`.

    Environments come from the shared cache; jars are this checkout's if both pin the same ones. Raises StackError.
    """
    this, environment = working_tree(), own_environment()
    name = this.run("git", "describe", "--always", revision, environment=environment).strip()
    this.run("git", "worktree", "add", "--detach", str(folder), revision, environment=environment)
    try:
        err.print(f"setting up {name} ...")
        other = Checkout(name=name, folder=folder)
        _link_jars(other)
        other.run(str(folder / "bin/setup"), environment=environment)
        yield other
    finally:
        if not keep:
            this.run("git", "worktree", "remove", "--force", str(folder), environment=environment)


def _link_jars(other: Checkout) -> None:
    if any((other.folder / pins).read_bytes() != (ROOT / pins).read_bytes() for pins in _PINS):
        return
    (other.folder / ".jars").mkdir()
    for part in jars.PARTS:
        (other.folder / ".jars" / part).symlink_to(ROOT / ".jars" / part)
