"""The project's containers as a test sees them: built, brought up, asked, killed, taken down."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltaworks.errors import StackError
from deltaworks.settings import ROOT
from tests.ports import free_ports

BASE_OF_PYTHON = "python:3.11.14-slim-bookworm"
SIDES = ("spark", "airflow")
_STAND_INS = ROOT / "tests" / "compose" / "stand-ins.yml"
_LABELS = "com.docker" + ".compose"  # in one piece it would look like the address of a registry
_STAND_IN_BASE = "deltaworks/base:local"
_CERTIFICATES_BYTES_MAX = 500_000  # of a secret of a build


class Project:
    """One compose project over docker-compose.yml, with ports and secrets of its own."""

    def __init__(self, name: str, environment: Mapping[str, str], folder: Path, say: Callable[[str], None]) -> None:
        airflow, control = free_ports(2)
        self.name, self._say = name, say
        self._environment = {
            **environment, "DELTAWORKS_SECRETS": str(folder / "secrets"), "AIRFLOW_PORT": str(airflow),
            "CONTROL_PORT": str(control), "COMPOSE_HTTP_TIMEOUT": "600",
        }  # fmt: skip
        self._files = ["--file", str(ROOT / "docker-compose.yml")]
        plugin = self._run(["docker", "compose", "version"], check=False).returncode == 0
        self._compose = ["docker", "compose"] if plugin else [shutil.which("docker-compose") or "docker-compose"]
        self._run([str(ROOT / "docker" / "secrets"), str(folder / "secrets")])

    def build(self, base: str | None, certificates: Path | None) -> None:
        """Build both images over `base`, an image or a file to import; without it the public one, or one made here."""
        name = self._base(base)
        secret = [] if certificates is None else ["--secret", f"id=ca,src={certificates}"]
        for side in SIDES:
            self._say(f"builds the image of the {side} side")
            self._run(
                [self._builder(), "build", "--network=host", *secret, "--build-arg", f"BASE={name}", "--tag",
                 f"deltaworks/{side}:local", "--file", str(ROOT / "docker" / f"{side}.Dockerfile"), str(ROOT)],
                DOCKER_BUILDKIT="1",
            )  # fmt: skip
        if not self._pulled(_image_of_postgres()):
            self._say("no registry of images: Postgres comes from the Spark side's image")
            self._files += ["--file", str(_STAND_INS)]

    def compose(self, *words: str, check: bool = True) -> str:
        """Run compose; returns what it printed. Raises StackError."""
        done = self._run([*self._compose, "--project-name", self.name, *self._files, *words], check=check)
        return done.stdout

    def up(self, *, seconds_max: float) -> None:
        """Bring everything up and wait until whoever has a health check is healthy."""
        self.compose("up", "--detach")
        self.until(self._all_well, "all containers are healthy", seconds_max=seconds_max)

    def inside(self, *words: str, check: bool = True, service: str = "driver-host") -> str:
        """Run a command in a container; returns what it printed. Raises StackError."""
        return self._run(["docker", "exec", self.container(service), *words], check=check).stdout

    def python(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run Python on the lake's host."""
        python = "/opt/deltaworks/.venv/spark/bin/python"
        return self._run(["docker", "exec", self.container("driver-host"), python, *words], check=check)

    def container(self, service: str) -> str:
        """Id of a service's container."""
        label = f"label={_LABELS}.service={service}"
        found = self._listed("ps", "--all", "--no-trunc", "--filter", label, "--format", "{{.ID}}")
        if len(found) != 1:
            raise StackError(f"service {service}", f"has {len(found)} containers", "See docker compose ps")
        return found[0]

    def kill(self, services: Sequence[str]) -> None:
        """SIGKILL containers' first processes from outside, all by one command: for Docker that is no stop by hand."""
        pids = [str(self._state(service)["Pid"]) for service in services]
        shell = ["--entrypoint", "sh", "deltaworks/spark:local", "-c", f"kill -9 {' '.join(pids)}"]
        self._run(["docker", "run", "--rm", "--pid=host", "--user", "0", "--network=none", *shell])

    def servers(self) -> list[str]:
        """Services that run on."""
        found = self._listed("ps", "--format", f'{{{{.Label "{_LABELS}.service"}}}}')
        return sorted(found)

    def left(self) -> list[str]:
        """What there is of the project: containers, networks, volumes."""
        kinds = (("ps", "--all"), ("network", "ls"), ("volume", "ls"))
        return [f"{kind[0]} {one}" for kind in kinds for one in self._listed(*kind, "--quiet")]

    def volumes(self) -> list[str]:
        """Its volumes."""
        return self._listed("volume", "ls", "--quiet")

    def until(self, true: Callable[[], bool], what: str, *, seconds_max: float) -> None:
        """Wait until it is so; raises StackError."""
        deadline = time.monotonic() + seconds_max
        while not true():
            if time.monotonic() > deadline:
                raise StackError(what, f"not after {seconds_max:.0f} s: {self.unwell()}", "See docker compose logs")
            time.sleep(2)

    def _all_well(self) -> bool:
        return not self.unwell()

    def unwell(self) -> list[str]:
        """Containers that are neither healthy nor a step that ended well, each with its state."""
        found = [json.loads(line) for line in self._listed("ps", "--all", "--format", "{{json .}}")]
        ids = [str(one["ID"]) for one in found]
        states: list[dict[str, Any]] = json.loads(self._run(["docker", "inspect", *ids]).stdout) if ids else []
        if not states:
            return ["no container"]
        return [
            f"{one['Config']['Labels'][_LABELS + '.service']} {one['State']['Status']}"
            for one in states if not _well(one["State"])
        ]  # fmt: skip

    def _state(self, service: str) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self._run(["docker", "inspect", self.container(service)]).stdout)[0]["State"]
        return state

    def _builder(self) -> str:
        """A client that builds with BuildKit: by a plugin, or of the versions that had it built in (Debian's)."""
        there = [f"{folder}/docker" for folder in self._environment.get("PATH", os.defpath).split(os.pathsep)]
        for client in filter(os.path.isfile, there):
            told = self._run([client, "version", "--format", "{{.Client.Version}}"]).stdout
            plugin = self._run([client, "buildx", "version"], check=False).returncode == 0
            if plugin or int(told.partition(".")[0]) < 23:
                return client
        raise StackError("docker", "no client here builds with BuildKit", "Install docker's buildx plugin")

    def _base(self, given: str | None) -> str:
        if given is None and self._pulled(BASE_OF_PYTHON):
            return BASE_OF_PYTHON
        if given is not None and not Path(given).is_file():
            return given
        with_path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        made = Path(given) if given is not None else self._made_base()
        self._run(["docker", "import", "--change", with_path, str(made), _STAND_IN_BASE])
        return _STAND_IN_BASE

    def _made_base(self) -> Path:
        """A Debian from the machine's own sources of packages."""
        self._say("no registry of images: makes a base by mmdebstrap")
        made = Path(self._environment["DELTAWORKS_SECRETS"]).parent / "base.tar"
        self._run([
            "mmdebstrap", "--variant=minbase", "--mode=root", "--include=ca-certificates,python3,python3-venv",
            "--dpkgopt=force-unsafe-io", "bookworm", str(made),
        ])  # fmt: skip
        return made

    def _pulled(self, image: str) -> bool:
        here = self._run(["docker", "image", "inspect", image], check=False).returncode == 0
        return here or self._run(["docker", "pull", "--quiet", image], check=False).returncode == 0

    def _listed(self, *words: str) -> list[str]:
        mine = ("--filter", f"label={_LABELS}.project={self.name}")
        return self._run(["docker", *words, *mine]).stdout.split("\n")[:-1]

    def _run(self, command: list[str], *, check: bool = True, **more: str) -> "subprocess.CompletedProcess[str]":
        environment = {**self._environment, **more}
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            raise StackError(command[0], "is not on this machine", "Install it, see CONTRIBUTING.md") from None
        if check and done.returncode != 0:
            said = (done.stdout + done.stderr).strip()[-1500:]
            raise StackError(" ".join(command[:4]), f"ended with {done.returncode}: {said}", "See above")
        return done


def certificates(environment: Mapping[str, str]) -> Path | None:
    """The machine's own certificates for downloads in a build, where it names some."""
    named = environment.get("SSL_CERT_FILE") or environment.get("PIP_CERT")
    path = Path(named) if named else None
    return path if path is not None and path.is_file() and path.stat().st_size < _CERTIFICATES_BYTES_MAX else None


def _image_of_postgres() -> str:
    lines = (ROOT / "docker-compose.yml").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.strip().startswith("image: postgres:"))


def _well(state: Mapping[str, Any]) -> bool:
    """Running and healthy, or a step that ended well."""
    if state["Status"] == "exited":
        return bool(state["ExitCode"] == 0)
    return bool(state["Status"] == "running" and state.get("Health", {"Status": "healthy"})["Status"] == "healthy")
