mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }

  mock_data "aws_ssm_parameter" {
    defaults = { insecure_value = "ami-0123456789abcdef0" }
  }

  mock_resource "aws_ebs_volume" {
    defaults = { id = "vol-0123456789abcdef0" }
  }
}

variables {
  name              = "test"
  vpc_id            = "vpc-0123456789abcdef0"
  subnet_id         = "subnet-0123456789abcdef0"
  availability_zone = "eu-central-1a"
  namespace         = "Deltaworks/test"
  bucket            = "test-bucket"
  bucket_arn        = "arn:aws:s3:::test-bucket"
  secret_arns = {
    deltaworks = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:test/deltaworks-abcdef"
    reader     = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:test/reader-abcdef"
  }
}

run "the_machine_is_closed" {
  command = apply

  assert {
    condition     = one(aws_instance.host.metadata_options).http_tokens == "required" && one(aws_instance.host.metadata_options).http_put_response_hop_limit == 1
    error_message = "The machine's metadata can be read without a token, or from containers."
  }

  assert {
    condition     = length(aws_vpc_security_group_egress_rule.host) == 1 && aws_vpc_security_group_egress_rule.host["https"].to_port == 443
    error_message = "The machine reaches more than port 443."
  }
}

run "both_disks_are_encrypted_and_the_data_outlives_the_machine" {
  command = apply

  assert {
    condition     = one(aws_instance.host.root_block_device).encrypted && aws_ebs_volume.data.encrypted
    error_message = "A disk is not encrypted."
  }

  assert {
    condition     = aws_volume_attachment.data.volume_id == aws_ebs_volume.data.id && aws_volume_attachment.data.instance_id == aws_instance.host.id
    error_message = "The data volume is not attached on its own."
  }

  assert {
    condition     = aws_volume_attachment.data.stop_instance_before_detaching && aws_ebs_volume.data.final_snapshot
    error_message = "The volume is taken from a running machine, or deleted without a copy."
  }

  assert {
    condition     = aws_ebs_volume.data.tags["Snapshots"] == "test" && output.volume_tag == { key = "Snapshots", value = "test" }
    error_message = "The volume does not have the tag by which snapshots are made."
  }
}

run "the_role_reads_its_secrets_and_no_others" {
  command = apply

  assert {
    condition = [
      for statement in jsondecode(aws_iam_role_policy.host.policy).Statement : sort(statement.Resource)
      if contains(flatten([statement.Action]), "secretsmanager:GetSecretValue")
    ] == [sort(values(var.secret_arns))]
    error_message = "The machine may read other secrets than its own."
  }

  assert {
    condition = [
      for statement in jsondecode(aws_iam_role_policy.host.policy).Statement : statement.Condition
      if contains(flatten([statement.Action]), "cloudwatch:PutMetricData")
    ] == [{ StringEquals = { "cloudwatch:namespace" = "Deltaworks/test" } }]
    error_message = "The machine may put metrics of others."
  }
}

run "what_it_does_at_its_start" {
  command = apply

  variables {
    compose_profiles = ["demo"]
  }

  assert {
    condition = alltrue([
      for name in ["deltaworks", "deltaworks-compose", "deltaworks-metrics", "deltaworks-release", "deltaworks-secrets", "deltaworks-volume"] :
      contains([for one in yamldecode(local.user_data).write_files : one.path], "/usr/local/bin/${name}")
    ])
    error_message = "A program is missing on the machine."
  }

  assert {
    condition     = strcontains(local.host_env, "VOLUME_ID='vol-0123456789abcdef0'") && strcontains(local.host_env, "PROFILES='demo'") && strcontains(local.host_env, "SECRET_NAMES='deltaworks reader'")
    error_message = "The programs are not told what to work on."
  }

  assert {
    condition     = length(base64gzip(local.user_data)) < 16384 * 4 / 3
    error_message = "AWS takes 16 KiB of user data."
  }
}

run "the_release_is_told_beside_the_machine" {
  command = apply

  variables {
    release        = { version = "1.0", sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
    compose_plugin = { version = "2.40.3", sha256 = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210" }
  }

  assert {
    condition     = jsondecode(nonsensitive(aws_ssm_parameter.release.value)) == { release = var.release, compose = var.compose_plugin }
    error_message = "The machine is told another release."
  }

  assert {
    condition     = !strcontains(local.user_data, var.release.sha256)
    error_message = "The release stands in the user data, so each one would replace the machine."
  }
}

run "a_release_needs_what_starts_it" {
  command = plan

  variables {
    release = { version = "1.0", sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
  }

  expect_failures = [var.release]
}

run "what_is_refused" {
  command = plan

  variables {
    release          = { version = "1.0", sha256 = "0123456789abcdef" }
    compose_plugin   = { version = "2.40.3", sha256 = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210" }
    instance_type    = "m7g.xlarge"
    secret_arns      = {}
    data_snapshot_id = "vol-0123456789abcdef0"
    may_reach        = { source = { port = 70000, cidr = "10.1.0.0/16" } }
    compose_profiles = ["demo'; reboot; '"]
    airflow_port     = 80800
    data_volume_gib  = 5
  }

  expect_failures = [var.release, var.instance_type, var.secret_arns, var.data_snapshot_id, var.may_reach, var.compose_profiles, var.airflow_port, var.data_volume_gib]
}
