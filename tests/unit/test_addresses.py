"""Addresses of parts: what each listens on, and where the others look for it."""

from pathlib import Path

import pytest

from deltaworks.errors import SettingsError
from deltaworks.local import airflow, connect, credentials, kafka, postgres
from deltaworks.local.stack import all_parts
from deltaworks.settings import ROOT, Settings

HOSTS = {f"host_{name}": f"{name}.example" for name in ("source", "control", "kafka", "connect", "airflow")}


def load(folder: Path, **given: object) -> Settings:
    """Load this project with its data elsewhere."""
    return Settings.load(ROOT, environment={}, data=folder, **given)


def test_a_machine_listens_on_loopback_alone(tmp_path: Path) -> None:
    """Kafka and Connect would be open to all who reach it."""
    with pytest.raises(SettingsError, match="listen: 0.0.0.0 is more than this machine"):
        load(tmp_path, listen="0.0.0.0")  # noqa: S104  # refused


def test_parts_are_found_at_their_hosts_and_listen_where_told(tmp_path: Path) -> None:
    """Kafka says its host to clients, Connect to workers; Airflow's parts find its pages' server."""
    settings = load(tmp_path, listen="10.0.0.2", place="containers", **HOSTS)
    credentials.generate(settings)

    kafka.write_config(settings)
    connect.write_config(settings)
    airflow.write_config(settings)
    told = {name: (tmp_path / name).read_text().splitlines() for name in (
        "config/kafka.properties", "config/connect.properties", "airflow/airflow.cfg"
    )}  # fmt: skip

    assert "advertised.listeners=PLAINTEXT://kafka.example:19092" in told["config/kafka.properties"]
    assert "listeners=PLAINTEXT://10.0.0.2:19092,CONTROLLER://127.0.0.1:19093" in told["config/kafka.properties"]
    assert "listeners=http://10.0.0.2:18083" in told["config/connect.properties"]
    assert "bootstrap.servers=kafka.example:19092" in told["config/connect.properties"]
    assert "rest.advertised.host.name=connect.example" in told["config/connect.properties"]
    assert "execution_api_server_url = http://airflow.example:18080/execution/" in told["airflow/airflow.cfg"]
    assert not any("127.0.0.1" in line for line in told["config/connect.properties"])


def test_a_connector_finds_its_source_by_the_settings(tmp_path: Path) -> None:
    """Its file names the host once, for every place."""
    found = connect.connector_of(load(tmp_path, **HOSTS))

    assert found is not None
    assert (found[1]["database.hostname"], found[1]["database.port"]) == ("source.example", "15432")


def test_each_part_is_asked_where_it_is(tmp_path: Path) -> None:
    """Probes go to the hosts of the settings, those of the project's own programs too."""
    settings = load(tmp_path, **HOSTS)
    inbox = load(tmp_path).changed(processes=Settings.load(
        ROOT, environment={"DELTAWORKS_HOST_INBOX": "inbox.example"}
    ).processes)  # fmt: skip

    asked = {part.name: part.probe.host for part in all_parts(settings) if part.probe is not None}
    of_inbox = {part.name: part for part in all_parts(inbox)}

    assert asked["kafka"] == "kafka.example"
    assert asked["airflow-scheduler"] == "airflow.example"
    assert asked["source"] == "source.example"
    assert of_inbox["inbox"].probe is not None
    assert of_inbox["inbox"].probe.host == "inbox.example"
    assert "http://inbox.example:18081/orders" in of_inbox["notify-1"].command


@pytest.mark.parametrize(("listen", "lets_in_neighbours"), [("127.0.0.1", False), ("10.0.0.2", True)])
def test_postgres_lets_neighbours_in_only_where_it_listens_for_them(
    tmp_path: Path, listen: str, *, lets_in_neighbours: bool
) -> None:
    """On loopback nobody else may come in, whatever listens."""
    settings = load(tmp_path, listen=listen, place="containers")
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "PG_VERSION").write_text("18")

    postgres.create_cluster(settings, "control")

    assert f"listen_addresses = '{listen}'" in (tmp_path / "control" / "deltaworks.conf").read_text()
    assert ("samenet" in (tmp_path / "control" / "pg_hba.conf").read_text()) == lets_in_neighbours
