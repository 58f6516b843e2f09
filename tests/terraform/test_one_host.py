"""The environment, applied to an emulator of AWS with its state in a bucket, planned again, destroyed."""

import base64
import gzip
import json
import re
from pathlib import Path

import yaml

from deltaworks.local.credentials import generate
from deltaworks.settings import Settings
from tests.terraform.conftest import STATE_BUCKET, Applied
from tests.terraform.policies import Planned

_HOST = "module.host.aws_instance.host"
_VOLUME = "module.host.aws_ebs_volume.data"
_PASSWORD = re.compile(r"[\w-]{43}")
_FERNET = re.compile(r"[\w-]{43}=")


def _actions(plan: dict[str, object]) -> dict[str, list[str]]:
    changes: list[dict[str, object]] = plan["resource_changes"]  # type: ignore[assignment]  # as Terraform documents it
    told = {str(one["address"]): one["change"]["actions"] for one in changes}  # type: ignore[index]  # the same
    return {address: actions for address, actions in told.items() if actions != ["no-op"]}


def _planned(applied: Applied, *given: str) -> dict[str, list[str]]:
    """What a plan with these options would do."""
    applied.terraform.run("plan", "-refresh=false", "-out=other.plan", *given)
    return _actions(applied.terraform.json("show", "-json", "other.plan"))


def test_all_is_made_and_a_second_plan_is_empty(applied: Applied) -> None:
    """The first plan makes everything; the one after it changes nothing."""
    first = _actions(applied.first)

    assert len(first) > 50
    assert set(map(tuple, first.values())) == {("create",)}
    assert _actions(applied.again) == {}
    assert len(Planned(applied.again).resources) == len(first)


def test_state_is_kept_in_the_bucket(applied: Applied) -> None:
    """By the backend of the environment; nothing of it lies beside the files."""
    kept = json.loads(applied.emulator.ask("s3", f"/{STATE_BUCKET}/one-host.tfstate"))

    assert kept["serial"] == json.loads(applied.state)["serial"]
    assert not list(applied.terraform.folder.glob("*.tfstate"))


def test_secrets_are_those_of_the_local_stack_and_stand_in_no_state(applied: Applied, tmp_path: Path) -> None:
    """Each has a value of its own in the form that the local stack makes, and Terraform keeps none of them."""
    project = Settings.load(environment={"DELTAWORKS_DATA": str(tmp_path / "data")})
    generate(project)
    wanted = {path.name for path in project.secrets.iterdir()}

    values = {name: _secret(applied, name) for name in wanted}

    assert len(set(values.values())) == len(wanted) > 10
    assert all(_PASSWORD.fullmatch(value) for name, value in values.items() if name != "airflow_fernet")
    assert _FERNET.fullmatch(values["airflow_fernet"])
    assert len(base64.urlsafe_b64decode(values["airflow_fernet"])) == 32
    assert not [name for name, value in values.items() if value in applied.state or value in json.dumps(applied.again)]


def _secret(applied: Applied, name: str) -> str:
    told = json.loads(
        applied.emulator.ask(
            "secretsmanager", method="POST", target="secretsmanager.GetSecretValue",
            body={"SecretId": f"deltaworks/{name}"},
        )
    )  # fmt: skip
    return str(told["SecretString"])


def test_snapshots_are_ordered_by_policy(applied: Applied) -> None:
    """One policy, for volumes with the tag that the data volume has."""
    (policy,) = applied.emulator.policies.values()
    (volume,) = Planned(applied.again).of("aws_ebs_volume")

    assert policy["PolicyDetails"]["TargetTags"] == [{"Key": "Snapshots", "Value": "deltaworks"}]
    assert volume.values["tags"]["Snapshots"] == "deltaworks"


def test_machine_is_told_its_volume_and_its_secrets(applied: Applied) -> None:
    """What cloud-init gets is one document, below AWS' limit, and names what was made."""
    planned = Planned(applied.again)
    (host,), (volume,) = planned.of("aws_instance"), planned.of("aws_ebs_volume")
    sent = base64.b64decode(host.values["user_data_base64"])
    told = yaml.safe_load(gzip.decompress(sent))
    files = {one["path"]: one["content"] for one in told["write_files"]}

    settings = files["/etc/deltaworks/host.env"]

    assert len(sent) < 16_384
    assert f"VOLUME_ID='{volume.values['id']}'" in settings
    assert "SECRET_NAMES='airflow airflow_admin " in settings
    assert "PROFILES='demo'" in settings
    assert "AIRFLOW_PORT='9080'" in settings
    assert len([path for path in files if path.startswith("/usr/local/bin/")]) == 6
    assert json.loads(files["/etc/docker/daemon.json"])["data-root"].startswith("/srv/deltaworks/")


def test_outputs_say_how_to_reach_airflow(applied: Applied) -> None:
    """The command names the machine that was made, and a document of Session Manager."""
    outputs = applied.again["planned_values"]["outputs"]
    (host,) = Planned(applied.again).of("aws_instance")

    reached = f"--target {host.values['id']} --document-name AWS-StartPortForwardingSession"
    assert reached in outputs["airflow_command"]["value"]
    assert '"portNumber":["9080"]' in outputs["airflow_command"]["value"]
    assert outputs["airflow_url"]["value"] == "http://127.0.0.1:9080"


def test_replacing_the_machine_leaves_the_volume(applied: Applied) -> None:
    """The machine and what hangs on it are made anew; the data volume is not touched."""
    done = _planned(applied, f"-replace={_HOST}")

    assert done[_HOST] == ["delete", "create"]
    assert done["module.host.aws_volume_attachment.data"] == ["delete", "create"]
    assert not [address for address in done if address.startswith((_VOLUME, "module.secrets", "module.backup"))]


def test_restoring_makes_the_volume_anew(applied: Applied) -> None:
    """Naming a snapshot replaces the data volume, and the machine that is told of it; what is kept apart stays."""
    done = _planned(applied, "-var=data_snapshot_id=snap-0123456789abcdef0")

    assert done[_VOLUME] == ["delete", "create"]
    apart = ("module.secrets", "module.backup", "module.network")
    assert not [address for address in done if address.startswith(apart)]


def test_a_release_changes_what_is_wanted_and_no_machine(applied: Applied) -> None:
    """A new release is one parameter."""
    wanted = '{version="1",sha256="' + "0" * 64 + '"}'

    done = _planned(applied, f"-var=release={wanted}", f"-var=compose_plugin={wanted}")

    assert done == {"module.host.aws_ssm_parameter.release": ["update"]}


def test_destroy_leaves_a_snapshot_of_the_data_and_nothing_else(applied: Applied) -> None:
    """The last test of this file: what it looks at is gone afterwards."""
    applied.terraform.run("destroy", "-auto-approve")

    left = json.loads(applied.terraform.run("state", "pull").stdout)["resources"]
    (volume,) = Planned(applied.again).of("aws_ebs_volume")
    asked = b"Action=DescribeSnapshots&Owner.1=self&Version=2016-11-15"
    told = applied.emulator.ask("ec2", method="POST", body=asked).decode()
    copies = told.count(f"<volumeId>{volume.values['id']}</volumeId>")

    assert left == []
    assert not applied.emulator.policies
    assert copies == 1
