"""One copy of `terraform/`, initialised once; one environment, applied to the emulator once."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.terraform import emulator
from tests.terraform.emulator import Emulator
from tests.terraform.program import ENVIRONMENTS, Terraform, copied, environment, initialised, offline

VARIABLES = """
region                = "eu-central-1"
alarm_mail_to         = ["data@example.com"]
secrets_recovery_days = 0
compose_profiles      = ["demo"]
airflow_port          = 9080
"""
STATE_BUCKET = "state-of-tests"
_REGION = b"<LocationConstraint>eu-central-1</LocationConstraint>"
_HERE = b"<CreateBucketConfiguration>" + _REGION + b"</CreateBucketConfiguration>"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Applied:
    """The environment as it stands in the emulator, and what Terraform said on the way."""

    terraform: Terraform
    emulator: Emulator
    first: dict[str, Any]
    again: dict[str, Any]
    """A second plan, made right after the first was applied: all values are known in it."""
    state: str


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of `terraform/`, with the provider laid in each module and environment."""
    if shutil.which("terraform") is None:
        pytest.skip("terraform is not on this machine")
    variables = environment()
    folder = copied(tmp_path_factory.mktemp("terraform") / "terraform")
    cannot = initialised(folder, variables)
    if cannot:
        pytest.skip(cannot)
    return folder


@pytest.fixture(scope="session")
def running_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """The emulator, with a bucket for the state."""
    with emulator.running(tmp_path_factory.mktemp("emulator") / "log") as started:
        started.ask("s3", f"/{STATE_BUCKET}", method="PUT", body=_HERE)
        yield started


@pytest.fixture(scope="session")
def one_host(work: Path, running_emulator: Emulator) -> Terraform:
    """The environment, led to the emulator, its state in a bucket there. Nothing is applied yet."""
    (environment_folder,) = ENVIRONMENTS
    folder = work / environment_folder
    (folder / "emulator_override.tf").write_text(running_emulator.provider())
    (folder / "backend.hcl").write_text(running_emulator.backend(STATE_BUCKET))
    (folder / "terraform.tfvars").write_text(VARIABLES)
    terraform = Terraform(folder=folder, variables=environment())
    terraform.run("init", "-backend-config=backend.hcl", *offline(terraform.variables))
    return terraform


@pytest.fixture(scope="session")
def applied(one_host: Terraform, running_emulator: Emulator) -> Applied:
    """The environment, planned, applied and planned again."""
    one_host.run("plan", "-out=first.plan")
    first = one_host.json("show", "-json", "first.plan")
    one_host.run("apply", "first.plan")
    one_host.run("plan", "-out=again.plan", "-detailed-exitcode", codes=(0, 2))
    return Applied(
        terraform=one_host,
        emulator=running_emulator,
        first=first,
        again=one_host.json("show", "-json", "again.plan"),
        state=one_host.run("state", "pull").stdout,
    )
