"""Policies hold over all that is planned, and each finds what breaks it."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.terraform.conftest import Applied
from tests.terraform.policies import POLICIES, Planned, Policy, statements

Break = Callable[[dict[str, Any]], None]


def _modules(module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield module
    for child in module.get("child_modules", ()):
        yield from _modules(child)


def _values(plan: dict[str, Any], kind: str) -> dict[str, Any]:
    """Values of the first resource of a kind, to be changed."""
    found = (
        one
        for module in _modules(plan["planned_values"]["root_module"])
        for one in module.get("resources", ())
        if one["type"] == kind
    )
    values: dict[str, Any] = next(found)["values"]
    return values


def _remove(plan: dict[str, Any], kind: str) -> None:
    for module in _modules(plan["planned_values"]["root_module"]):
        if "resources" in module:
            module["resources"] = [one for one in module["resources"] if one["type"] != kind]


def _add(plan: dict[str, Any], kind: str, **values: Any) -> None:
    added = {"address": f"{kind}.added", "mode": "managed", "type": kind, "values": values}
    plan["planned_values"]["root_module"].setdefault("resources", []).append(added)


def _set(kind: str, **values: Any) -> Break:
    return lambda plan: _values(plan, kind).update(values)


def _without(kind: str) -> Break:
    return lambda plan: _remove(plan, kind)


def _with(kind: str, **values: Any) -> Break:
    return lambda plan: _add(plan, kind, **values)


def _allow(**statement: Any) -> Break:
    """A role's policy that allows this."""
    text = json.dumps({"Statement": [{"Sid": "Added", "Effect": "Allow", **statement}]})
    return _with("aws_iam_role_policy", policy=text)


def _open_bucket_policy(plan: dict[str, Any]) -> None:
    values = _values(plan, "aws_s3_bucket_policy")
    values["policy"] = values["policy"].replace("Deny", "Allow")


def _unencrypted_root(plan: dict[str, Any]) -> None:
    _values(plan, "aws_instance")["root_block_device"][0]["encrypted"] = False


def _metadata(**options: Any) -> Break:
    return lambda plan: _values(plan, "aws_instance")["metadata_options"][0].update(options)


def _secret_output(plan: dict[str, Any]) -> None:
    plan["planned_values"]["outputs"]["password"] = {"sensitive": True, "value": "x"}


_ONE = "arn:aws:s3:::bucket/file"
BREAKS: tuple[tuple[str, str, Break], ...] = (
    ("nothing_comes_in", "a rule", _with("aws_vpc_security_group_ingress_rule", from_port=22)),
    ("nothing_comes_in", "an old rule", _with("aws_security_group_rule", type="ingress")),
    ("nothing_comes_in", "in the group", _set("aws_security_group", ingress=[{"from_port": 8080}])),
    ("nothing_comes_in", "the default group", _set("aws_default_security_group", ingress=[{"self": True}])),
    ("nothing_is_public", "a machine", _set("aws_instance", public_ip="203.0.113.5")),
    ("nothing_is_public", "a key to log in", _set("aws_instance", key_name="mine")),
    ("nothing_is_public", "a subnet", _set("aws_subnet", map_public_ip_on_launch=True)),
    ("nothing_is_public", "an address", _set("aws_eip", instance="i-0")),
    ("nothing_is_public", "no block", _without("aws_s3_bucket_public_access_block")),
    ("nothing_is_public", "half a block", _set("aws_s3_bucket_public_access_block", block_public_policy=False)),
    ("nothing_is_public", "a bucket's policy", _open_bucket_policy),
    ("everything_is_encrypted", "the data", _set("aws_ebs_volume", encrypted=False)),
    ("everything_is_encrypted", "the system's disk", _unencrypted_root),
    ("everything_is_encrypted", "the bucket", _without("aws_s3_bucket_server_side_encryption_configuration")),
    ("everything_is_encrypted", "on the way", _without("aws_s3_bucket_policy")),
    ("everything_is_encrypted", "alarms", _set("aws_sns_topic", kms_master_key_id="")),
    ("metadata_wants_a_token", "version 1", _metadata(http_tokens="optional")),
    ("metadata_wants_a_token", "from containers", _metadata(http_put_response_hop_limit=2)),
    ("rights_are_named", "an action", _allow(Action="s3:*", Resource=_ONE)),
    ("rights_are_named", "one of several", _allow(Action=["s3:GetObject", "ec2:Describe*"], Resource=_ONE)),
    ("rights_are_named", "a resource", _allow(Action="s3:GetObject", Resource="*")),
    ("rights_are_named", "a service", _allow(Action="s3:GetObject", Resource="arn:aws:s3:::*")),
    ("rights_are_named", "all but", _allow(NotAction="iam:PassRole", Resource=_ONE)),
    ("rights_are_named", "of others", _with("aws_iam_role_policy_attachment", policy_arn="arn:aws:iam::aws:policy/x")),
    ("what_goes_out_is_named", "a port", _set("aws_vpc_security_group_egress_rule", from_port=0)),
    ("what_goes_out_is_named", "IPv6", _set("aws_vpc_security_group_egress_rule", cidr_ipv6="::/0")),
    ("what_goes_out_is_named", "the default group", _set("aws_default_security_group", egress=[{"from_port": 0}])),
    ("what_is_kept_is_kept", "no policy", _without("aws_dlm_lifecycle_policy")),
    ("what_is_kept_is_kept", "a policy that rests", _set("aws_dlm_lifecycle_policy", state="DISABLED")),
    ("what_is_kept_is_kept", "another tag", _set("aws_ebs_volume", tags={"Snapshots": "other"})),
    ("what_is_kept_is_kept", "no copy", _set("aws_ebs_volume", final_snapshot=False)),
    ("what_is_kept_is_kept", "no versions", _without("aws_s3_bucket_versioning")),
    ("what_is_kept_is_kept", "a bucket that goes", _set("aws_s3_bucket", force_destroy=True)),
    ("no_secret_is_told", "a value", _set("aws_secretsmanager_secret_version", secret_string="x")),
    ("no_secret_is_told", "a parameter", _set("aws_ssm_parameter", type="SecureString")),
    ("no_secret_is_told", "an output", _secret_output),
    ("missing_data_is_an_alarm", "quiet", _set("aws_cloudwatch_metric_alarm", treat_missing_data="missing")),
    ("missing_data_is_an_alarm", "to nobody", _set("aws_cloudwatch_metric_alarm", alarm_actions=[])),
)
_BY_NAME = {policy.__name__: policy for policy in POLICIES}


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_policy_holds(policy: Policy, applied: Applied) -> None:
    """Over what stands after the first apply, where every value is known."""
    planned = Planned(applied.again)

    assert len(list(statements(planned))) > 10
    assert list(policy(planned)) == []


@pytest.mark.parametrize(("name", "what", "broken"), BREAKS, ids=[f"{name}: {what}" for name, what, _ in BREAKS])
def test_policy_finds_what_breaks_it(name: str, what: str, broken: Break, applied: Applied) -> None:
    """The same plan with one thing changed."""
    plan = copy.deepcopy(applied.again)
    broken(plan)

    found = list(_BY_NAME[name](Planned(plan)))

    assert found, f"{name} does not see {what}"


def test_no_public_address_is_asked_for(applied: Applied) -> None:
    """In the first plan, which has what the configuration says and nothing that was read back."""
    (host,) = Planned(applied.first).of("aws_instance")

    assert host.values["ami"]
    assert not host.values.get("associate_public_ip_address")


def test_each_policy_is_tried() -> None:
    """A policy that nothing breaks might find nothing at all."""
    assert {name for name, _, _ in BREAKS} == set(_BY_NAME)
