"""What must hold of everything that is planned: a policy is a function from the planned resources to its findings."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Policy = Callable[["Planned"], Iterator[str]]
_REASONED_ACTIONS = {
    "AccountDecides": "a key's own policy: the account decides about it, else nobody ever could",
}
_REASONED_RESOURCES = {
    "AccountDecides": "in a key's own policy this key is meant",
    "AlarmsAreSent": "in a key's own policy this key is meant",
    "FindVolumes": "ec2:Describe... know no single resource",
    "PutMetrics": "metrics are no resources; a condition bounds the namespace",
    "SessionsAndCommands": "channels of Session Manager know no single resource",
}
_OUTSIDE = ("0.0.0.0/0", "::/0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resource:
    """A resource as it is planned."""

    address: str
    kind: str
    values: Mapping[str, Any]


class Planned:
    """All managed resources of a plan, as `terraform show -json` tells it."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.resources = tuple(_resources(plan["planned_values"]["root_module"]))
        self.outputs: Mapping[str, Any] = plan["planned_values"].get("outputs", {})

    def of(self, *kinds: str) -> tuple[Resource, ...]:
        """Those of some kinds."""
        return tuple(one for one in self.resources if one.kind in kinds)


def _resources(module: Mapping[str, Any]) -> Iterator[Resource]:
    for one in module.get("resources", ()):
        if one["mode"] == "managed":
            yield Resource(address=one["address"], kind=one["type"], values=one.get("values", {}))
    for child in module.get("child_modules", ()):
        yield from _resources(child)


def nothing_comes_in(planned: Planned) -> Iterator[str]:
    """No security group, of ours or the default one, lets anybody in."""
    for one in planned.of("aws_vpc_security_group_ingress_rule"):
        yield f"{one.address} lets in"
    for one in planned.of("aws_security_group", "aws_default_security_group"):
        if one.values.get("ingress"):
            yield f"{one.address} has inbound rules"
    for one in planned.of("aws_security_group_rule"):
        if one.values.get("type") == "ingress":
            yield f"{one.address} lets in"


def nothing_is_public(planned: Planned) -> Iterator[str]:
    """No machine has a public address, no subnet gives one, no bucket can be opened, no policy names everybody."""
    for one in planned.of("aws_instance"):
        # not associate_public_ip_address: what is read back of it is true in the emulator, whatever was asked
        if one.values.get("public_ip") or one.values.get("key_name"):
            yield f"{one.address} has a public address, or a key to log in"
    for one in planned.of("aws_subnet"):
        if one.values.get("map_public_ip_on_launch"):
            yield f"{one.address} gives public addresses"
    for one in planned.of("aws_eip"):
        if one.values.get("instance"):
            yield f"{one.address} is a machine's"
    closed = {one.values["bucket"] for one in planned.of("aws_s3_bucket_public_access_block") if _is_closed(one)}
    for one in planned.of("aws_s3_bucket"):
        if one.values["bucket"] not in closed:
            yield f"{one.address} can be made public"
    for one, statement in _allowing(planned):
        if _everybody(statement.get("Principal")):
            yield f"{one.address} lets everybody: {statement.get('Sid')}"


def everything_is_encrypted(planned: Planned) -> Iterator[str]:
    """Disks, the bucket, the topic of alarms; the bucket by TLS only."""
    for one in planned.of("aws_ebs_volume"):
        if not one.values.get("encrypted"):
            yield f"{one.address} is not encrypted"
    for one in planned.of("aws_instance"):
        disks = [*one.values.get("root_block_device", ()), *one.values.get("ebs_block_device", ())]
        if not disks or not all(disk.get("encrypted") for disk in disks):
            yield f"{one.address} has a disk that is not encrypted"
    encrypted = {one.values["bucket"] for one in planned.of("aws_s3_bucket_server_side_encryption_configuration")}
    by_tls = {one.values["bucket"] for one in planned.of("aws_s3_bucket_policy") if _wants_tls(one)}
    for one in planned.of("aws_s3_bucket"):
        if one.values["bucket"] not in encrypted:
            yield f"{one.address} is not encrypted"
        if one.values["bucket"] not in by_tls:
            yield f"{one.address} answers without TLS"
    for one in planned.of("aws_sns_topic"):
        if not one.values.get("kms_master_key_id"):
            yield f"{one.address} is not encrypted"


def metadata_wants_a_token(planned: Planned) -> Iterator[str]:
    """IMDSv2 only, and not from containers."""
    for one in planned.of("aws_instance"):
        options = one.values.get("metadata_options") or [{}]
        if options[0].get("http_tokens") != "required":
            yield f"{one.address} tells its metadata without a token"
        if options[0].get("http_put_response_hop_limit") != 1:
            yield f"{one.address} tells its metadata to containers"


def rights_are_named(planned: Planned) -> Iterator[str]:
    """No action with a wildcard, no resource that is just one, without a reason in the lists above."""
    for one, statement in _allowing(planned):
        sid = statement.get("Sid", "without a name")
        if "NotAction" in statement or "NotResource" in statement:
            yield f"{one.address} allows all but something: {sid}"
        for action in _several(statement.get("Action")):
            if "*" in action and sid not in _REASONED_ACTIONS:
                yield f"{one.address} allows {action}: {sid}"
        for resource in _several(statement.get("Resource")):
            if _is_boundless(resource) and sid not in _REASONED_RESOURCES:
                yield f"{one.address} allows it on {resource}: {sid}"
    for one in planned.of("aws_iam_role_policy_attachment", "aws_iam_policy_attachment"):
        yield f"{one.address} takes rights over that stand elsewhere"


def what_goes_out_is_named(planned: Planned) -> Iterator[str]:
    """To the whole internet one port only: 443."""
    for one in planned.of("aws_vpc_security_group_egress_rule"):
        ports = (one.values.get("from_port"), one.values.get("to_port"))
        if one.values.get("cidr_ipv4") in _OUTSIDE and (ports != (443, 443) or one.values.get("ip_protocol") != "tcp"):
            yield f"{one.address} lets {ports} out to the internet"
        if one.values.get("cidr_ipv6") in _OUTSIDE:
            yield f"{one.address} lets out to all of IPv6"
    for one in planned.of("aws_default_security_group"):
        if one.values.get("egress"):
            yield f"{one.address} lets out"


def what_is_kept_is_kept(planned: Planned) -> Iterator[str]:
    """The data volume has snapshots and leaves one; the bucket keeps versions and is not deleted with its files."""
    tags = [
        details["target_tags"]
        for one in planned.of("aws_dlm_lifecycle_policy")
        if one.values.get("state") == "ENABLED"
        for details in one.values["policy_details"]
    ]
    for one in planned.of("aws_ebs_volume"):
        if not any(wanted.items() <= (one.values.get("tags") or {}).items() for wanted in tags):
            yield f"{one.address} has no snapshots"
        if not one.values.get("final_snapshot"):
            yield f"{one.address} is deleted without a copy"
    versioned = {
        one.values["bucket"]
        for one in planned.of("aws_s3_bucket_versioning")
        if one.values["versioning_configuration"][0]["status"] == "Enabled"
    }
    for one in planned.of("aws_s3_bucket"):
        if one.values["bucket"] not in versioned or one.values.get("force_destroy"):
            yield f"{one.address} loses what is deleted"


def no_secret_is_told(planned: Planned) -> Iterator[str]:
    """No value of a secret stands in plan, state or output; user data holds none either."""
    for one in planned.of("aws_secretsmanager_secret_version"):
        if one.values.get("secret_string") or one.values.get("secret_binary") or one.values.get("secret_string_wo"):
            yield f"{one.address} tells its value"
    for one in planned.of("aws_ssm_parameter"):
        if one.values.get("type") == "SecureString":
            yield f"{one.address} is a secret in the state"
    for name, output in planned.outputs.items():
        if output.get("sensitive"):
            yield f"output {name} is a secret"


def missing_data_is_an_alarm(planned: Planned) -> Iterator[str]:
    """Each alarm rises where data is missing, and tells somebody."""
    for one in planned.of("aws_cloudwatch_metric_alarm"):
        if one.values.get("treat_missing_data") != "breaching":
            yield f"{one.address} is quiet where data is missing"
        if not one.values.get("alarm_actions"):
            yield f"{one.address} tells nobody"


POLICIES: tuple[Policy, ...] = (
    nothing_comes_in,
    nothing_is_public,
    everything_is_encrypted,
    metadata_wants_a_token,
    rights_are_named,
    what_goes_out_is_named,
    what_is_kept_is_kept,
    no_secret_is_told,
    missing_data_is_an_alarm,
)


def statements(planned: Planned) -> Iterator[tuple[Resource, Mapping[str, Any]]]:
    """Every statement of every policy: of roles, trust, keys, buckets, topics, endpoints."""
    for one in planned.resources:
        for name in ("policy", "assume_role_policy"):
            text = one.values.get(name)
            if isinstance(text, str) and text:
                yield from ((one, statement) for statement in _several(json.loads(text)["Statement"]))


def _allowing(planned: Planned) -> Iterator[tuple[Resource, Mapping[str, Any]]]:
    return ((one, statement) for one, statement in statements(planned) if statement["Effect"] == "Allow")


def _several(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _everybody(principal: object) -> bool:
    named = principal.values() if isinstance(principal, dict) else [principal]
    return any("*" in _several(one) for one in named)


def _is_boundless(resource: str) -> bool:
    """Is it everything, or everything of a service?"""
    return resource == "*" or (resource.startswith("arn:") and set(resource.split(":", 5)[-1]) <= {"*"})


def _is_closed(block: Resource) -> bool:
    wanted = ("block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets")
    return all(block.values.get(name) for name in wanted)


def _wants_tls(policy: Resource) -> bool:
    wanted = {"Bool": {"aws:SecureTransport": "false"}}
    return any(
        one["Effect"] == "Deny" and one.get("Condition") == wanted and _everybody(one.get("Principal"))
        for one in json.loads(policy.values["policy"])["Statement"]
    )
