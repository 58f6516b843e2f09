"""Where things are: the only module that reads the environment.

Order of precedence: argument, environment (DELTAWORKS_...), the project's deltaworks.toml, default.
"""

import os
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import quote

from msgspec import Meta, Struct, ValidationError, convert, field, structs

from deltaworks.errors import SettingsError

ROOT = Path(__file__).resolve().parents[1]
Positive = Annotated[int, Meta(gt=0)]
Port = Annotated[int, Meta(gt=0, lt=65536)]
Host = Annotated[str, Meta(pattern="^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
LOOPBACK = "127.0.0.1"
Checked = TypeVar("Checked")
_PREFIX = "DELTAWORKS_"
_PORTS = {
    "source": "port_source",
    "control": "port_control",
    "kafka": "port_kafka",
    "kafka_controller": "port_kafka_controller",
    "connect": "port_connect",
    "airflow": "port_airflow",
}
_HOSTS = {name: f"host_{name}" for name in ("source", "control", "kafka", "connect", "airflow")}
_DATABASES = {
    "shop": ("source", "shop"),
    "debezium": ("source", "shop"),
    "source_admin": ("source", "postgres"),
    "deltaworks": ("control", "deltaworks"),
    "airflow": ("control", "airflow"),
    "serving": ("control", "serving"),
    "reader": ("control", "serving"),
    "control_admin": ("control", "postgres"),
}


class AppSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one Spark driver runs."""

    trigger_seconds: Annotated[float, Meta(gt=0, le=600)] = 0.5
    rows_per_batch_max: Positive = 50_000
    """Per topic and micro-batch."""
    memory: Annotated[str, Meta(pattern="^[1-9][0-9]*[mg]$")] = "1g"
    """Heap of the JVM."""
    cores: Positive = 2


class TopicSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One Kafka topic of the project."""

    partitions: Positive = 1
    key: str
    """What the key is, in words: order is kept per key."""
    retention_hours: Annotated[float, Meta(gt=0)] = 168
    """Of a topic that is not compacted."""
    cleanup: Literal["delete", "compact"] = "delete"
    compaction_hours_max: Annotated[float, Meta(gt=0)] = 24
    """Of a compacted topic: so long after a later record of its key an older one may still be there."""


class SourceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The source database: SQL that creates it and the connector that captures it, relative to the project."""

    schema_file: Path = field(name="schema")
    connector: Path


class ProcessSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program of the project's own that the local stack keeps running when it is asked for."""

    run: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Python module and arguments. `{data}`, `{part}`, `{listen}`, `{host_inbox}` and the like are filled in."""
    count: Positive = 1
    """How many of them run side by side."""
    after: tuple[str, ...] = ()
    """Parts of the stack, other processes too, that must be ready before it starts."""
    ports: dict[str, Port] = {}
    """What it listens on, by name."""
    host: Host = LOOPBACK
    """Where others find it."""
    ready: str | None = None
    """The port whose `GET /` answers 200 when it is ready; without it: when it has lived for a second."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a part needs to find its project, its data and its neighbours."""

    project: Path
    data: Path
    jars: Path = ROOT / ".jars"
    spark_python: Path = ROOT / ".venv/spark/bin/python"
    airflow_python: Path = ROOT / ".venv/airflow/bin/python"
    port_source: Port = 15432
    port_control: Port = 15433
    port_kafka: Port = 19092
    port_kafka_controller: Port = 19093
    port_connect: Port = 18083
    port_airflow: Port = 18080
    host_source: Host = LOOPBACK
    host_control: Host = LOOPBACK
    host_kafka: Host = LOOPBACK
    host_connect: Host = LOOPBACK
    host_airflow: Host = LOOPBACK
    place: Literal["machine", "containers"] = "machine"
    """Whether the parts are processes of this machine or each a container."""
    listen: Host = LOOPBACK
    """What the parts listen on; 0.0.0.0 only where their network is their own, as a container's is."""
    launcher: Literal["process", "agent"] = "process"
    """Who starts drivers: whoever supervises them, beside itself, or the agent on the host where the lake is."""
    airflow_pages: Annotated[str, Meta(pattern="^https?://[^/]+$")] | None = None
    """Where browsers find Airflow, if that is another address than its neighbours'."""
    secrets_in: Path | None = None
    """Folder of the secrets where they are made elsewhere."""
    apps: dict[str, AppSettings] = {}
    topics: dict[str, TopicSettings] = {}
    source: SourceSettings | None = None
    processes: dict[str, ProcessSettings] = {}
    replays: dict[str, Annotated[str, Meta(pattern=r"^\S+( \S+){4}$")]] = {}
    """Tables of which the day before is computed again on a schedule: each with a cron expression (UTC)."""
    lease_seconds: Annotated[float, Meta(gt=1)] = 15
    """How long an app stays owned without a renewal."""
    behind_seconds: Annotated[float, Meta(gt=0)] = 60
    """For so long, and two times `trigger_seconds`, something may wait to be taken before the app is not well."""
    arrow_bytes_max: Positive = 64 * 2**20
    """Above, Spark commits instead of Arrow."""
    direct_plans: bool = True
    """Whether transforms of few rows are planned once and computed without a job, where they can be."""
    fail_at: Annotated[str, Meta(pattern="^[a-z0-9_.]+[.][a-z]+[.][a-z-]+(:[1-9][0-9]*)?$")] | None = None
    """A driver kills itself at this crash point: for drills."""

    @classmethod
    def load(cls, project: Path | None = None, *, environment: Mapping[str, str] | None = None, **given: Any) -> Self:
        """Read the project's files and the environment; raises SettingsError with the place of the mistake."""
        env = os.environ if environment is None else environment
        folder = (project or Path(env.get(f"{_PREFIX}PROJECT", ROOT))).resolve()
        file = folder / "deltaworks.toml"
        if not file.is_file():
            raise SettingsError(str(folder), "no deltaworks.toml here", "Give the project's folder with --project")
        declared = _toml(file)
        values: dict[str, Any] = {"project": folder, "data": folder / ".deltaworks", **declared}
        values |= _named(values.pop("ports", {}), _PORTS, f"{file} [ports]", "port")
        values |= _named(values.pop("hosts", {}), _HOSTS, f"{file} [hosts]", "host")
        if "apps" in declared:
            values["apps"] = _each(declared["apps"], AppSettings, f"{file} [apps]")
        if "source" in declared:
            values["source"] = _checked(declared["source"], SourceSettings, f"{file} [source]")
        if "processes" in declared:
            values["processes"] = _each(declared["processes"], ProcessSettings, f"{file} [processes]")
        topics = folder / "topics.toml"
        if topics.is_file():
            values["topics"] = _each(_toml(topics), TopicSettings, str(topics))
        values |= _from(env, values.get("processes", {})) | {"project": folder} | given
        values["data"] = Path(values["data"]).resolve()
        found = _checked(values, cls, str(file))
        if found.listen != LOOPBACK and found.place == "machine":
            finding = f"{found.listen} is more than this machine, and Kafka and Connect ask for no password"
            raise SettingsError("listen", finding, f"Take it out: {LOOPBACK} is what it is without a word")
        return found

    def changed(self, **values: Any) -> Self:
        """The same settings but for these."""
        return structs.replace(self, **values)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Every setting's name."""
        return cls.__struct_fields__

    def environment(self) -> dict[str, str]:
        """The variables that make a child process load these same settings."""
        fields = ["project", "data", "jars", "spark_python", "airflow_python", "lease_seconds", "arrow_bytes_max"]
        fields += ["direct_plans", "behind_seconds", "place", "listen", "launcher", "airflow_pages", "secrets_in"]
        values = {name: getattr(self, name) for name in fields} | self.ports | self.hosts
        return {f"{_PREFIX}{name.upper()}": str(value) for name, value in values.items() if value is not None}

    def inherited(self) -> dict[str, str]:
        """The whole environment for a child process: this one's, with these settings in it."""
        return {**os.environ, **self.environment()}

    def use_utc(self) -> None:
        """Let this process count time in UTC, whatever the machine does: Spark hands out times without a zone."""
        os.environ["TZ"] = "UTC"
        time.tzset()

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
        """Folder of the secrets, a file each."""
        return self.secrets_in or self.data / "secrets"

    @property
    def quality(self) -> Path:
        """Folder of what Great Expectations keeps."""
        return self.data / "quality"

    @property
    def quality_docs(self) -> Path:
        """Folder of its Data Docs: pages that need no server."""
        return self.quality / "docs"

    @property
    def quality_results(self) -> Path:
        """Folder of its results, as JSON."""
        return self.quality / "results"

    @property
    def run(self) -> Path:
        """Folder of process ids and the state of the local stack."""
        return self.data / "run"

    @property
    def kafka(self) -> str:
        """Bootstrap address of the broker."""
        return f"{self.host_kafka}:{self.port_kafka}"

    @property
    def ports(self) -> dict[str, int]:
        """Every port by its setting's name; `port_inbox_smtp` is `smtp` of the process `inbox`."""
        own = {
            port_setting(name, port): number
            for name, one in self.processes.items()
            for port, number in one.ports.items()
        }
        return {name: getattr(self, name) for name in _PORTS.values()} | own

    @property
    def hosts(self) -> dict[str, str]:
        """Every host by its setting's name; `host_inbox` is that of the process `inbox`."""
        own = {host_setting(name): one.host for name, one in self.processes.items()}
        return {name: getattr(self, name) for name in _HOSTS.values()} | own

    @property
    def airflow_url(self) -> str:
        """Where Airflow's pages are, for a browser."""
        return self.airflow_pages or self.airflow_api

    @property
    def airflow_api(self) -> str:
        """Where the other parts find Airflow's api-server."""
        return f"http://{self.host_airflow}:{self.port_airflow}"

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
        source = server == "source"
        host = f"{self.host_source}:{self.port_source}" if source else f"{self.host_control}:{self.port_control}"
        user = "postgres" if role.endswith("_admin") else role
        return f"postgresql://{user}:{quote(self.secret(role), safe='')}@{host}/{database}"

    def source_dsn(self, role: str = "shop") -> str:
        """Address of the source database for a role (shop, debezium)."""
        return self.dsn(role)

    def control_dsn(self) -> str:
        """Address of the control store."""
        return self.dsn("deltaworks")

    def serving_dsn(self, role: str = "serving") -> str:
        """Address of the database beside the lake, for its owner or for the role `reader`, who may only read copies."""
        return self.dsn(role)

    def app(self, name: str) -> AppSettings:
        """Settings of an app; an app that deltaworks.toml does not mention has the defaults."""
        return self.apps.get(name, AppSettings())


def _checked(values: object, kind: type[Checked], place: str) -> Checked:
    """Values as read, in the declared types; a number may be written as text, as in the environment."""
    try:
        return convert(values, kind, strict=False, from_attributes=True, dec_hook=_path)
    except ValidationError as error:
        finding, _, where = str(error).partition(" - at `$")
        name = where.rstrip("`").lstrip(".")
        raise SettingsError(f"{place} {name}".rstrip(), finding, "Mend the file or the environment") from None


def _each(values: object, kind: type[Checked], place: str) -> dict[str, Checked]:
    """Tables of a file, by name."""
    if not isinstance(values, dict):
        raise SettingsError(place, "no table", "Write it as [name] with settings below")
    return {name: _checked(one, kind, f"{place} {name}") for name, one in values.items()}


def _path(kind: type, value: object) -> Path:
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    raise ValidationError(f"Expected a path, got `{type(value).__name__}`")


def _named(given: object, known: Mapping[str, str], place: str, what: str) -> dict[str, object]:
    """`[ports]` and `[hosts]` by the settings' names."""
    if not isinstance(given, dict):
        raise SettingsError(place, "no table", f"Write it as {place.rpartition(' ')[2]} with name = {what} below")
    wrong = sorted(set(given) - set(known))
    if wrong:
        raise SettingsError(f"{place} {wrong[0]}", f"unknown {what}", f"Known are {', '.join(known)}")
    return {known[name]: value for name, value in given.items()}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(str(path), str(error), "Mend the file") from None


def _from(env: Mapping[str, str], processes: Mapping[str, ProcessSettings]) -> dict[str, Any]:
    """The settings given in the environment; a variable of ours that means nothing is refused."""
    found = {name.removeprefix(_PREFIX).lower(): value for name, value in env.items() if name.startswith(_PREFIX)}
    moved = {}
    for name, one in processes.items():
        ports = {port: found.pop(port_setting(name, port), number) for port, number in one.ports.items()}
        host = found.pop(host_setting(name), one.host)
        place = f"{_PREFIX}{port_setting(name, '*').upper()}"
        moved[name] = _checked(structs.asdict(one) | {"ports": ports, "host": host}, ProcessSettings, place)
    unknown = sorted(set(found) - set(Settings.names()))
    if unknown:
        raise SettingsError(f"{_PREFIX}{unknown[0].upper()}", "no such setting", "Take it out of the environment")
    return {"processes": moved, **found}


def port_setting(process: str, name: str) -> str:
    """What a port of a process is called among the settings."""
    return f"port_{process}_{name}".lower()


def host_setting(process: str) -> str:
    """What the host of a process is called among the settings."""
    return f"host_{process}".lower()
