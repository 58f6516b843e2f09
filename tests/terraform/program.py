"""Terraform as the tests run it: offline where the provider lies on this machine, in a copy, with no credentials."""

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "terraform"
ENVIRONMENTS = tuple(sorted(path.parent.relative_to(SOURCE) for path in SOURCE.glob("environments/*/main.tf")))
MODULES = tuple(sorted(path.parent.relative_to(SOURCE) for path in SOURCE.glob("modules/*/main.tf")))
PLUGINS_VARIABLE = "DELTAWORKS_TERRAFORM_PLUGINS"
"""Names a folder of providers (a file system mirror), for a machine where it lies in none of the usual places."""
_USUAL = (
    "~/.terraform.d/plugins", "~/.local/share/terraform/plugins",
    "/usr/local/share/terraform/plugins", "/usr/share/terraform/plugins", "/opt/*",
)  # fmt: skip
_PROVIDER = "*/hashicorp/aws/*/*/terraform-provider-aws_v*"
_SECONDS_MAX = 600  # the emulator's buckets take a minute, a busy machine many times as long


class TerraformError(Exception):
    """A command of Terraform failed; its text is what Terraform said."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terraform:
    """Terraform with a folder to work in and what it is told by its environment."""

    folder: Path
    variables: Mapping[str, str]

    def run(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        """Run a command; raises what it said if it ends with none of the codes."""
        ran = subprocess.run(
            ["terraform", *arguments], cwd=self.folder, env=dict(self.variables), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=_SECONDS_MAX,
        )  # fmt: skip
        if ran.returncode not in codes:
            raise TerraformError(f"terraform {' '.join(arguments)} ended with {ran.returncode}\n{ran.stdout}")
        return ran

    def json(self, *arguments: str) -> dict[str, Any]:
        """The answer of a command that speaks JSON."""
        answer: dict[str, Any] = json.loads(self.run(*arguments).stdout)
        return answer

    def at(self, folder: Path) -> "Terraform":
        """The same in another folder."""
        return dataclasses.replace(self, folder=folder)


def environment() -> dict[str, str]:
    """The process' environment without what would make Terraform ask, colour, leave the copy or reach real AWS."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TF_"))}
    told = {name: value for name, value in os.environ.items() if name in {"TF_PLUGIN_CACHE_DIR", "TF_CLI_CONFIG_FILE"}}
    if not Path(told.get("TF_CLI_CONFIG_FILE", "")).is_file():
        told.pop("TF_CLI_CONFIG_FILE", None)  # it names a file that is not there: each command would warn
    ours = {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1", "TF_CLI_ARGS": "-no-color"}
    refused = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull}
    return {**kept, **told, **ours, **refused, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}


def mirrors(variables: Mapping[str, str]) -> Iterator[Path]:
    """Folders on this machine that hold the provider, best first."""
    named = variables.get(PLUGINS_VARIABLE)
    for place in (named,) if named else _USUAL:
        wanted = Path(place).expanduser()
        for folder in sorted(wanted.parent.glob(wanted.name)):
            if folder.is_dir() and next(folder.glob(_PROVIDER), None):
                yield folder


def offline(variables: Mapping[str, str]) -> tuple[str, ...]:
    """What tells init to take the provider from this machine; nothing where it is not here."""
    return tuple(f"-plugin-dir={folder}" for folder in mirrors(variables))[:1]


def copied(to: Path) -> Path:
    """A copy of `terraform/` without what somebody's own init left there."""
    left_out = shutil.ignore_patterns(".terraform*", "*.tfstate*", "*.tfvars", "backend.hcl")
    shutil.copytree(SOURCE, to, ignore=left_out)
    return to


def initialised(work: Path, variables: Mapping[str, str]) -> str | None:
    """Init the environments of a copy without their backend, and lay what that gave in each module.

    Returns why it cannot be done here; None if it was done. A mirror that is there and does not do is an error.
    """
    here = offline(variables)
    for environment_folder in ENVIRONMENTS:
        terraform = Terraform(folder=work / environment_folder, variables=variables)
        ran = terraform.run("init", "-backend=false", *here, codes=(0,) if here else (0, 1))
        if ran.returncode:
            last = [line for line in ran.stdout.splitlines() if line.strip()][-1]
            return f"no provider hashicorp/aws on this machine, nor by the network: {last}"
    first = work / ENVIRONMENTS[0]
    for module in MODULES:
        shutil.copytree(first / ".terraform/providers", work / module / ".terraform/providers", symlinks=True)
        shutil.copy(first / ".terraform.lock.hcl", work / module)
    return None
