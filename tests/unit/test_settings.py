"""Settings: where they come from, and how a mistake is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from deltaworks.errors import SettingsError
from deltaworks.settings import Settings

FILE = """
[ports]
kafka = 29092

[apps.shop]
memory = "2g"
"""


def project(folder: Path, text: str = FILE, topics: str = "") -> Path:
    """Write a project of settings alone."""
    (folder / "deltaworks.toml").write_text(text)
    if topics:
        (folder / "topics.toml").write_text(topics)
    return folder


def test_argument_goes_before_environment_before_file_before_default(tmp_path: Path) -> None:
    """Each place overrides the ones after it; numbers and paths come as such."""
    project(tmp_path, topics='[views]\nkey = "the page"\npartitions = 3\n')
    environment = {"DELTAWORKS_PORT_KAFKA": "39092", "DELTAWORKS_DATA": str(tmp_path / "a/.."), "HOME": "/x"}

    plain = Settings.load(tmp_path, environment={})
    moved = Settings.load(tmp_path, environment=environment)
    given = Settings.load(tmp_path, environment=environment, port_kafka=49092)

    assert (plain.port_kafka, moved.port_kafka, given.port_kafka) == (29092, 39092, 49092)
    assert (plain.data, moved.data) == (tmp_path / ".deltaworks", tmp_path)
    assert (plain.app("shop").memory, plain.app("other").memory) == ("2g", "1g")
    assert (plain.topics["views"].partitions, plain.topics["views"].retention_hours) == (3, 168)
    assert plain.source is None


def test_a_child_loads_the_same_settings(tmp_path: Path) -> None:
    """What goes into a child's environment comes out as the same settings."""
    text = FILE + "[processes.inbox]\nrun = ['x']\nports = {web = 7000}"
    elsewhere = {"host_kafka": "kafka", "listen": "10.0.0.2", "place": "containers", "secrets_in": tmp_path / "s"}
    settings = Settings.load(
        project(tmp_path, text), environment={"DELTAWORKS_HOST_INBOX": "inbox"}, port_airflow=1234,
        data=tmp_path / "data", airflow_pages="http://127.0.0.1:8080", **elsewhere,
    )  # fmt: skip

    assert settings.processes["inbox"].host == "inbox"
    assert Settings.load(environment=settings.environment()) == settings


def test_each_part_is_found_at_its_own_host(tmp_path: Path) -> None:
    """Addresses are made of host and port; a browser's may be another; secrets may lie elsewhere."""
    hosts = "[hosts]\nsource = 'db.source'\ncontrol = 'db-control'\nkafka = 'broker'"
    environment = {"DELTAWORKS_HOST_AIRFLOW": "airflow", "DELTAWORKS_AIRFLOW_PAGES": "http://127.0.0.1:8080"}
    (tmp_path / "made").mkdir()
    for role in ("shop", "deltaworks"):
        (tmp_path / "made" / role).write_text("sesame\n")

    found = Settings.load(project(tmp_path, hosts), environment=environment, secrets_in=tmp_path / "made")

    assert found.kafka == "broker:19092"
    assert found.source_dsn() == "postgresql://shop:sesame@db.source:15432/shop"
    assert found.control_dsn() == "postgresql://deltaworks:sesame@db-control:15433/deltaworks"
    assert (found.airflow_api, found.airflow_url) == ("http://airflow:18080", "http://127.0.0.1:8080")
    assert found.changed(airflow_pages=None).airflow_url == "http://airflow:18080"


def test_without_hosts_everything_is_on_this_machine(tmp_path: Path) -> None:
    """Clients look for it on loopback, and servers listen there alone."""
    found = Settings.load(project(tmp_path), environment={})

    assert {*found.hosts.values(), found.listen} == {"127.0.0.1"}


def test_a_process_counts_in_utc_when_told_to(tmp_path: Path) -> None:
    """Whatever zone the machine is in."""
    program = """
import sys
from datetime import datetime
from pathlib import Path
from deltaworks.settings import Settings
Settings.load(Path(sys.argv[1]), environment={}).use_utc()
print(datetime.fromtimestamp(0))
"""
    told = subprocess.run(
        [sys.executable, "-c", program, str(project(tmp_path))],
        env={"TZ": "Asia/Tokyo"},
        capture_output=True,
        check=True,
    )

    assert told.stdout == b"1970-01-01 00:00:00\n"


@pytest.mark.parametrize(
    ("text", "topics", "environment", "error"),
    [
        ("[apps.shop]\nmemory = 'much'", "", {}, r"deltaworks.toml \[apps\] shop memory: Expected `str` matching"),
        ("[apps.shop]\ncoars = 2", "", {}, r"\[apps\] shop: Object contains unknown field `coars`"),
        ("apps = 3", "", {}, r"\[apps\]: no table"),
        ("[ports]\nkafak = 1", "", {}, r"\[ports\] kafak: unknown port. Known are source, control, kafka"),
        ("[ports]\nkafka = 70000", "", {}, "port_kafka: Expected `int` <= 65535"),
        ("[hosts]\nkafak = 'x'", "", {}, r"\[hosts\] kafak: unknown host. Known are source, control, kafka"),
        ("[hosts]\nkafka = 'a/b'", "", {}, "host_kafka: Expected `str` matching"),
        ("", "", {"DELTAWORKS_AIRFLOW_PAGES": "127.0.0.1"}, "airflow_pages: Expected `str` matching"),
        ("[source]\nschema = 3\nconnector = 'c'", "", {}, r"\[source\]: Expected a path, got `int`"),
        ("[processes.x]\nruns = ['x']", "", {}, r"\[processes\] x: Object .* field `run"),
        ("[processes.x]\nrun = []", "", {}, r"\[processes\] x run: Expected `array` of length >= 1"),
        ("[processes.x]\nrun = ['x']\nports = {a = 70000}", "", {}, r"x ports\[...\]: Expected `int` <= 65535"),
        (
            "[processes.x]\nrun = ['x']\nports = {a = 7000}",
            "",
            {"DELTAWORKS_PORT_X_A": "no"},
            r"DELTAWORKS_PORT_X_\* ports.*: Expected `int`",
        ),
        ("leese_seconds = 3", "", {}, "unknown field `leese_seconds`"),
        ("x = ", "", {}, "deltaworks.toml: Invalid value"),
        ("", "[views]\npartitions = 1", {}, "topics.toml views: Object missing required field `key`"),
        ("", "", {"DELTAWORKS_PROT_KAFKA": "1"}, "DELTAWORKS_PROT_KAFKA: no such setting"),
        ("", "", {"DELTAWORKS_PORT_KAFKA": "many"}, "port_kafka: Expected `int`, got `str`"),
    ],
)
def test_a_mistake_is_told_with_its_place(
    tmp_path: Path, text: str, topics: str, environment: dict[str, str], error: str
) -> None:
    """File, table, name and finding."""
    with pytest.raises(SettingsError, match=error):
        Settings.load(project(tmp_path, text, topics), environment=environment)
