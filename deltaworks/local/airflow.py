"""Airflow as four processes: scheduler, dag-processor, triggerer, api-server.

Its settings are in data/airflow/airflow.cfg, which only we can read, and not in the environment: what Airflow starts
(Spark drivers too) inherits the environment, and shall not inherit signing keys and the metadata database's password.
"""

import configparser
import io
import json
import os
from collections.abc import Mapping, Sequence
from typing import NoReturn

from deltaworks.errors import StackError
from deltaworks.local.part import Part, Probe
from deltaworks.local.private import private_folder, write_private
from deltaworks.settings import LOOPBACK, ROOT, Settings

USERS = {"admin": "admin", "operator": "user", "viewer": "viewer"}
"""Airflow's role of each: what an operator may is to trigger, pause and clear DAGs."""
_EVERY_SECONDS_STARTING, _EVERY_SECONDS_READY = 1.0, 5.0  # each question costs the api-server three queries


def home(settings: Settings) -> str:
    """AIRFLOW_HOME."""
    return str(settings.data / "airflow")


def environment(settings: Settings) -> dict[str, str]:
    """Our environment for Airflow's processes; settings of another Airflow in the user's shell are left out."""
    kept = {name: value for name, value in settings.inherited().items() if not name.startswith("AIRFLOW_")}
    return kept | {"AIRFLOW_HOME": home(settings)}


def run(settings: Settings, arguments: Sequence[str]) -> NoReturn:
    """Become Airflow's own command line, for this stack; raises StackError where there is no Airflow yet."""
    if settings.place == "containers":
        raise StackError("Airflow", "is in containers of its own", "Use its pages, or its REST interface")
    if not (settings.data / "airflow" / "airflow.cfg").is_file():
        raise StackError(str(settings.data), "has no Airflow yet", 'Run "deltaworks up airflow"')
    command = _command(settings, *arguments)
    os.execve(command[0], command, environment(settings))  # noqa: S606  # no shell on purpose


def parts(settings: Settings) -> tuple[Part, ...]:
    """The four processes; they start side by side once the metadata database has its tables."""
    health = "/api/v2/monitor/health"
    api = ("api-server", "--host", settings.listen, "--port", str(settings.port_airflow), "--workers", "1")
    return (
        _part(
            settings,
            "api-server",
            api,
            Probe(kind="http", host=settings.host_airflow, port=settings.port_airflow, path=health),
        ),
        # without the flag a log server listens on all interfaces
        _part(settings, "scheduler", ("scheduler", "--skip-serve-logs"), _component(settings, "scheduler")),
        _part(settings, "dag-processor", ("dag-processor",), _component(settings, "dag_processor")),
        _part(settings, "triggerer", ("triggerer", "--skip-serve-logs"), _component(settings, "triggerer")),
    )


def migration(settings: Settings) -> Part:
    """The step that creates the tables of the metadata database or brings them up to date."""
    return Part(
        name="airflow-database",
        of="airflow",
        step=True,
        command=_command(settings, "db", "migrate"),
        folder=settings.data / "airflow",
        log=settings.logs / "airflow-database.log",
        after=("control-databases",),
    )


def write_config(settings: Settings) -> None:
    """Write Airflow's settings and the passwords of its users."""
    private_folder(settings.data / "airflow")
    passwords = {user: settings.secret(f"airflow_{user}") for user in USERS}
    write_private(settings.data / "airflow" / "passwords.json", json.dumps(passwords))
    config = configparser.RawConfigParser()
    config.read_dict(_settings(settings))
    text = io.StringIO()
    config.write(text)
    write_private(settings.data / "airflow" / "airflow.cfg", text.getvalue())


def _settings(settings: Settings) -> Mapping[str, Mapping[str, str]]:
    folder = settings.data / "airflow"
    simple = "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
    return {
        "core": {
            "dags_folder": str(settings.project / "dags"),
            "plugins_folder": str(ROOT / "deltaworks" / "supervise" / "plugins"),
            "load_examples": "False",
            "executor": "LocalExecutor",
            "parallelism": "4",  # a forked worker each
            "auth_manager": simple,
            "simple_auth_manager_users": ",".join(f"{user}:{role}" for user, role in USERS.items()),
            "simple_auth_manager_passwords_file": str(folder / "passwords.json"),
            "execution_api_server_url": f"{settings.airflow_api}/execution/",
            "fernet_key": settings.secret("airflow_fernet"),
        },
        "database": {"sql_alchemy_conn": settings.dsn("airflow").replace("postgresql://", "postgresql+psycopg2://", 1)},
        "api": {
            "host": settings.listen,
            "port": str(settings.port_airflow),
            "base_url": settings.airflow_url,
            "workers": "1",
            "secret_key": settings.secret("airflow_session"),
            "expose_config": "False",
        },
        "api_auth": {"jwt_secret": settings.secret("airflow_jwt")},
        "dag_processor": {
            "refresh_interval": "10",
            "parsing_processes": "1",
            # a file that changed is parsed at once all the same; with the default, 30 s, it took a seventh of a core
            "min_file_process_interval": "300",
        },
        "scheduler": {
            # with the default of 20, as many running streams keep every backfill from being scheduled (#58554)
            "max_dagruns_per_loop_to_schedule": "200",
            "enable_health_check": "False",
        },
        "workers": {
            "min_heartbeat_interval": "1",  # a trigger that fires before a deferral is seen as ended fails the task
            "execution_api_timeout": "30",  # seconds; the default of 5 fails tasks on a busy machine
        },
        "logging": {"base_log_folder": str(folder / "logs"), "worker_log_server_host": LOOPBACK},
        "usage_data_collection": {"enabled": "False"},
    }


def _part(settings: Settings, name: str, arguments: tuple[str, ...], probe: Probe) -> Part:
    return Part(
        name=f"airflow-{name}",
        of="airflow",
        command=_command(settings, *arguments),
        folder=settings.data / "airflow",
        log=settings.logs / f"airflow-{name}.log",
        after=("airflow-database", "control"),
        probe=probe,
        port=probe.port if probe.kind == "http" else None,
        stop_seconds=15,  # a scheduler once needed more than 60 s; its workers ignore SIGTERM
    )


def _component(settings: Settings, component: str) -> Probe:
    return Probe(
        kind="airflow",
        host=settings.host_airflow,
        port=settings.port_airflow,
        component=component,
        every_seconds_starting=_EVERY_SECONDS_STARTING,
        every_seconds_ready=_EVERY_SECONDS_READY,
    )


def _command(settings: Settings, *arguments: str) -> tuple[str, ...]:
    return (str(settings.airflow_python), "-m", "airflow", *arguments)
