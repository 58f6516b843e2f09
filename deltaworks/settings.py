"""Where things are: the only module that reads the environment.

Order of precedence: argument, environment (DELTAWORKS_...), the project's deltaworks.toml, default.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from deltaworks.errors import SettingsError

ROOT = Path(__file__).resolve().parents[1]
_PREFIX = "DELTAWORKS_"
_PORTS = {
    "source": "port_source",
    "control": "port_control",
    "kafka": "port_kafka",
    "kafka_controller": "port_kafka_controller",
    "connect": "port_connect",
    "airflow": "port_airflow",
}
_DATABASES = {
    "shop": ("source", "shop"),
    "debezium": ("source", "shop"),
    "source_admin": ("source", "postgres"),
    "deltaworks": ("control", "deltaworks"),
    "airflow": ("control", "airflow"),
    "control_admin": ("control", "postgres"),
}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AppSettings(_Frozen):
    """How one Spark driver runs."""

    trigger_seconds: float = Field(default=0.5, gt=0, le=600)
    rows_per_batch_max: int = Field(default=50_000, gt=0, description="per topic and micro-batch")
    memory: str = Field(default="1g", pattern=r"^[1-9][0-9]*[mg]$", description="heap of the JVM")
    cores: int = Field(default=2, gt=0)
    launcher: Literal["local"] = "local"


class TopicSettings(_Frozen):
    """One Kafka topic of the project."""

    partitions: int = Field(default=1, gt=0)
    key: str = Field(description="what the key is, in words: order is kept per key")
    retention_hours: float = Field(default=168, gt=0)
    cleanup: Literal["delete", "compact"] = "delete"


class SourceSettings(_Frozen):
    """The source database: SQL that creates it and the connector that captures it, relative to the project."""

    schema_file: Path = Field(alias="schema")
    connector: Path
    simulator: tuple[str, ...] = ()
    """Python module and arguments that play the source, kept running by `deltaworks up simulator`."""


class Settings(_Frozen):
    """Everything a part needs to find its project, its data and its neighbours."""

    project: Path
    data: Path
    jars: Path = ROOT / ".jars"
    spark_python: Path = ROOT / ".venv/spark/bin/python"
    airflow_python: Path = ROOT / ".venv/airflow/bin/python"
    port_source: int = 15432
    port_control: int = 15433
    port_kafka: int = 19092
    port_kafka_controller: int = 19093
    port_connect: int = 18083
    port_airflow: int = 18080
    apps: Mapping[str, AppSettings] = {}
    topics: Mapping[str, TopicSettings] = {}
    source: SourceSettings | None = None
    lease_seconds: float = Field(default=15, gt=1, description="how long an app stays owned without a renewal")
    arrow_bytes_max: int = Field(default=64 * 2**20, gt=0, description="above, Spark commits instead of Arrow")

    @classmethod
    def load(cls, project: Path | None = None, *, environment: Mapping[str, str] | None = None, **given: Any) -> Self:
        """Read the project's files and the environment; raises SettingsError with the place of the mistake."""
        env = os.environ if environment is None else environment
        folder = (project or Path(env.get(f"{_PREFIX}PROJECT", ROOT))).resolve()
        if not (folder / "deltaworks.toml").is_file():
            raise SettingsError(str(folder), "no deltaworks.toml here", "Give the project's folder with --project")
        declared = _toml(folder / "deltaworks.toml")
        ports = declared.pop("ports", {})
        wrong = sorted(set(ports) - set(_PORTS))
        if wrong:
            raise SettingsError(
                f"{folder}/deltaworks.toml [ports] {wrong[0]}", "unknown port", f"Known are {', '.join(_PORTS)}"
            )
        values: dict[str, Any] = {"project": folder, "data": folder / ".deltaworks", **declared}
        values |= {_PORTS[name]: port for name, port in ports.items()}
        values["topics"] = _toml(folder / "topics.toml") if (folder / "topics.toml").is_file() else {}
        values |= _from(env) | {"project": folder} | given
        try:
            loaded = cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise SettingsError(f"{folder}: {place}", first["msg"], "Mend deltaworks.toml or the environment") from None
        return loaded.model_copy(update={"data": loaded.data.resolve()})

    def environment(self) -> dict[str, str]:
        """The variables that make a child process load these same settings."""
        fields = ["project", "data", "jars", "spark_python", "airflow_python", "lease_seconds", "arrow_bytes_max"]
        return {f"{_PREFIX}{name.upper()}": str(getattr(self, name)) for name in [*fields, *_PORTS.values()]}

    def inherited(self) -> dict[str, str]:
        """The whole environment for a child process: this one's, with these settings in it."""
        return {**os.environ, **self.environment()}

    def use_java(self, home: Path) -> None:
        """Let libraries of this process that look for Java themselves (Spark's launcher) find this one."""
        os.environ["JAVA_HOME"] = str(home)

    @property
    def lake(self) -> Path:
        """Folder of the Delta tables: lake/<layer>/<table>."""
        return self.data / "lake"

    @property
    def logs(self) -> Path:
        """Folder of the logs, one file per part."""
        return self.data / "logs"

    @property
    def secrets(self) -> Path:
        """Folder of the generated secrets, one 0600 file each."""
        return self.data / "secrets"

    @property
    def run(self) -> Path:
        """Folder of process ids and the state of the local stack."""
        return self.data / "run"

    @property
    def kafka(self) -> str:
        """Bootstrap address of the broker."""
        return f"127.0.0.1:{self.port_kafka}"

    @property
    def airflow_url(self) -> str:
        """Where Airflow's pages are."""
        return f"http://127.0.0.1:{self.port_airflow}"

    def secret(self, name: str) -> str:
        """Read a generated secret; raises SettingsError if the stack was never started."""
        try:
            return (self.secrets / name).read_text().strip()
        except OSError as error:
            finding = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
            raise SettingsError(f"secret {name}", finding, 'Run "deltaworks up"') from None

    def dsn(self, role: str) -> str:
        """Address of the role's database as a libpq URL, with its password."""
        server, database = _DATABASES[role]
        port = self.port_source if server == "source" else self.port_control
        user = "postgres" if role.endswith("_admin") else role
        return f"postgresql://{user}:{quote(self.secret(role), safe='')}@127.0.0.1:{port}/{database}"

    def source_dsn(self, role: str = "shop") -> str:
        """Address of the source database for a role (shop, debezium)."""
        return self.dsn(role)

    def control_dsn(self) -> str:
        """Address of the control store."""
        return self.dsn("deltaworks")

    def app(self, name: str) -> AppSettings:
        """Settings of an app; an app that deltaworks.toml does not mention has the defaults."""
        return self.apps.get(name, AppSettings())


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(str(path), str(error), "Mend the file") from None


def _from(env: Mapping[str, str]) -> dict[str, str]:
    """The settings given in the environment; a variable of ours that means nothing is refused."""
    found = {name.removeprefix(_PREFIX).lower(): value for name, value in env.items() if name.startswith(_PREFIX)}
    unknown = sorted(set(found) - set(Settings.model_fields))
    if unknown:
        raise SettingsError(f"{_PREFIX}{unknown[0].upper()}", "no such setting", "Take it out of the environment")
    return found
