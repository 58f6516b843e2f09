"""docker-compose.yml is the local stack in containers: the same parts, order, ports and secrets, and nothing open."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deltaworks.local import credentials
from deltaworks.local.container import DRIVER_HOST, driver_host
from deltaworks.local.stack import all_parts
from deltaworks.settings import LOOPBACK, Settings
from tests.tidy.repository import ROOT

FILE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
SETTINGS = Settings.load(ROOT, environment={})
PARTS = {part.name: part for part in (*all_parts(SETTINGS), driver_host(SETTINGS))}
OURS = {name for name, one in SERVICES.items() if one["image"].startswith("deltaworks/")}


def test_services_are_the_parts_of_the_stack() -> None:
    """Each has its part's name and runs it; only the agent has no place on a laptop."""
    assert {*SERVICES} == {*PARTS}
    assert {name: one["command"] for name, one in SERVICES.items() if name in OURS} == {
        name: ["run", name] for name in OURS
    }
    assert {*SERVICES} - OURS == {"source", "control"}


def test_the_host_at_aws_runs_these_containers() -> None:
    """Their user, secrets, profile and port, and the service in which the command line is, are those of terraform/."""
    terraform = ROOT / "terraform"
    host, environment = terraform / "modules/host", terraform / "environments/one-host"
    settings = (host / "user-data.tf").read_text()
    port = re.search(
        r'variable "airflow_port" \{.*?default += (\d+)', (environment / "variables.tf").read_text(), re.DOTALL
    )

    assert {one["user"].split(":")[0] for one in SERVICES.values()} == {*re.findall(r"OWNER='(\d+)'", settings)}
    assert {*re.findall(r"^    (\w+) += \{ desc", (environment / "secrets.tf").read_text(), re.MULTILINE)} == {
        *FILE["secrets"]
    }
    assert f" {DRIVER_HOST} deltaworks" in (host / "files/deltaworks").read_text()
    assert 'compose_profiles = ["demo"]' in (environment / "terraform.tfvars.example").read_text()
    assert port
    assert SERVICES["airflow-api-server"]["ports"] == [f"127.0.0.1:${{AIRFLOW_PORT:-{port[1]}}}:18080"]


def _before(name: str) -> set[str]:
    """What has to be there before a service starts, and before that."""
    after = {*SERVICES[name].get("depends_on", {})}
    return after.union(*(_before(other) for other in after))


@pytest.mark.parametrize("name", sorted(PARTS))
def test_a_service_starts_after_what_its_part_comes_after(name: str) -> None:
    """A step has ended well, what answers is healthy; the demo's programs are a profile."""
    after, one = SERVICES[name].get("depends_on", {}), SERVICES[name]

    assert {*PARTS[name].after} <= _before(name)
    for other, how in after.items():
        wanted = "service_completed_successfully" if PARTS[other].step else "service_healthy"
        assert how == {"condition": wanted}, other
    assert (one.get("profiles") == ["demo"]) == (PARTS[name].of in SETTINGS.processes)
    assert one["restart"] == ("on-failure" if PARTS[name].step else "unless-stopped")


@pytest.mark.parametrize("name", sorted(PARTS))
def test_whoever_can_be_asked_has_a_health_check_of_its_own(name: str) -> None:
    """The same question as the local stack's; the server from a public image is asked by its own program."""
    test = SERVICES[name].get("healthcheck", {}).get("test")

    if name == DRIVER_HOST:
        assert "agent.beat" in test[1]
    elif name in OURS and PARTS[name].probe is not None:
        side = "airflow" if PARTS[name].of == "airflow" else "spark"
        python = f"/opt/deltaworks/.venv/{side}/bin/python"
        assert test == ["CMD", python, "-m", "deltaworks.local.container", "ready", name]
    elif PARTS[name].probe is not None:
        assert test[-1] == f"--port={PARTS[name].port}"
    else:
        assert test is None


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_container_is_no_root_and_is_bounded(name: str) -> None:
    """User, capabilities, file system, memory, processes, log."""
    one = SERVICES[name]

    assert one["user"] == "10001:10001"
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert one["read_only"]
    assert one["mem_limit"]
    assert one["pids_limit"]
    assert one["logging"]["options"]["max-size"]
    assert not {"privileged", "network_mode", "pid", "cap_add", "devices"} & {*one}


def test_nothing_is_published_beyond_loopback() -> None:
    """Each published port names the host's loopback, and is its part's own inside."""
    published = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}

    assert {*published} == {"airflow-api-server", "control"}
    for name, ports in published.items():
        assert all(re.fullmatch(rf"{re.escape(LOOPBACK)}:\$\{{\w+:-\d+\}}:{PARTS[name].port}", one) for one in ports)


def test_every_host_is_a_service() -> None:
    """Each part is found at the name of its container."""
    environment = FILE["x-environment"]
    of = {f"DELTAWORKS_{name.upper()}": environment[f"DELTAWORKS_{name.upper()}"] for name in SETTINGS.hosts if
          f"DELTAWORKS_{name.upper()}" in environment}  # fmt: skip

    assert {*SETTINGS.hosts} - {"host_simulator", "host_notify"} == {
        name.removeprefix("DELTAWORKS_").lower() for name in of
    }
    assert {*of.values()} <= {*SERVICES}


def test_secrets_are_those_of_the_stack(tmp_path: Path) -> None:
    """By the names that the local stack makes; each container has only what it needs, and none has all."""
    credentials.generate(SETTINGS.changed(data=tmp_path))
    made = {path.name for path in (tmp_path / "secrets").iterdir()}
    given = {name: {*one.get("secrets", ())} for name, one in SERVICES.items()}

    assert {*FILE["secrets"]} == made
    assert set().union(*given.values()) == made
    assert not any(secrets == made for secrets in given.values())
    assert all(one["file"] == f"${{DELTAWORKS_SECRETS:-./.secrets}}/{name}" for name, one in FILE["secrets"].items())


def test_data_is_in_named_volumes_and_the_project_is_mounted() -> None:
    """What is kept has a name; tables, suites and DAGs are the host's own files, for reading."""
    mounts = {name: one.get("volumes", []) for name, one in SERVICES.items()}
    every = {mount for some in mounts.values() for mount in some}

    named = {mount.partition(":")[0] for mount in every if not mount.startswith(".")}
    assert named == {*FILE["volumes"]}
    assert all(mount.endswith(":ro") for mount in every if mount.startswith("."))
    for folder in ("tables", "expectations", "dags"):
        for name in (DRIVER_HOST, "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"):
            assert f"./{folder}:/opt/deltaworks/{folder}:ro" in mounts[name]


def test_images_are_pinned_and_name_no_registry() -> None:
    """Ours are built here; others have a version, and a name without a host."""
    images = {one["image"] for one in SERVICES.values()} - {"deltaworks/spark:local", "deltaworks/airflow:local"}
    files = "".join(path.read_text() for path in (ROOT / "docker").glob("*.Dockerfile"))
    bases = re.findall(r"^ARG BASE=(\S+)$", files, re.MULTILINE)

    assert images
    assert len(bases) == 2
    assert all(re.fullmatch(r"[a-z]+:\d+\.\d+[a-z0-9.-]*", image) for image in (*images, *bases))


def test_the_postgres_image_is_of_the_wheel_s_major_version() -> None:
    """The files are made by the one and served by the other."""
    from deltaworks.local.postgres import binaries

    assert f"pginstall{SERVICES['source']['image'].partition(':')[2].partition('.')[0]}" == binaries().parent.name
