mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }

  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/test-snapshots" }
  }
}

variables {
  name       = "test"
  volume_tag = { key = "Snapshots", value = "test" }
}

run "the_bucket_is_closed_and_keeps_versions" {
  command = apply

  assert {
    condition     = output.bucket == "test-123456789012-eu-central-1"
    error_message = "The bucket's name is not that of this account and region."
  }

  assert {
    condition     = aws_s3_bucket_versioning.releases.versioning_configuration[0].status == "Enabled"
    error_message = "The bucket keeps no versions."
  }

  assert {
    condition     = one(one(aws_s3_bucket_server_side_encryption_configuration.releases.rule).apply_server_side_encryption_by_default).sse_algorithm == "aws:kms"
    error_message = "The bucket is not encrypted by a key of KMS."
  }

  assert {
    condition = alltrue([
      aws_s3_bucket_public_access_block.releases.block_public_acls,
      aws_s3_bucket_public_access_block.releases.block_public_policy,
      aws_s3_bucket_public_access_block.releases.ignore_public_acls,
      aws_s3_bucket_public_access_block.releases.restrict_public_buckets,
    ])
    error_message = "The bucket can be made public."
  }

  assert {
    condition = one(jsondecode(aws_s3_bucket_policy.releases.policy).Statement) == {
      Sid       = "TlsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = ["arn:aws:s3:::test-123456789012-eu-central-1", "arn:aws:s3:::test-123456789012-eu-central-1/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }
    error_message = "The bucket answers without TLS."
  }

  assert {
    condition     = aws_s3_bucket.releases.force_destroy == false
    error_message = "The bucket can be deleted while it has files."
  }
}

run "snapshots_of_the_tagged_volume" {
  command = apply

  variables {
    snapshot_hours = 6
    snapshots_kept = 28
  }

  assert {
    condition     = aws_dlm_lifecycle_policy.snapshots.policy_details[0].target_tags == tomap({ Snapshots = "test" })
    error_message = "Snapshots are made of other volumes."
  }

  assert {
    condition = (
      aws_dlm_lifecycle_policy.snapshots.state == "ENABLED"
      && aws_dlm_lifecycle_policy.snapshots.policy_details[0].schedule[0].create_rule[0].interval == 6
      && aws_dlm_lifecycle_policy.snapshots.policy_details[0].schedule[0].retain_rule[0].count == 28
    )
    error_message = "Snapshots are not made, or not kept, as asked."
  }

  assert {
    condition = alltrue([
      for statement in jsondecode(aws_iam_role_policy.snapshots.policy).Statement :
      statement.Condition.StringEquals == { "aws:ResourceTag/ScheduledBy" = "test-snapshots" }
      if contains(flatten([statement.Action]), "ec2:DeleteSnapshot")
    ])
    error_message = "Snapshots that others made can be deleted."
  }

  assert {
    condition     = aws_dlm_lifecycle_policy.snapshots.policy_details[0].schedule[0].tags_to_add == tomap({ ScheduledBy = "test-snapshots" })
    error_message = "Snapshots have no tag by which they may be deleted."
  }
}

run "what_is_refused" {
  command = plan

  variables {
    snapshot_hours      = 5
    snapshots_kept      = 1
    snapshot_time       = "24:00"
    volume_tag          = { key = "Snapshots", value = "" }
    older_versions_days = 0
  }

  expect_failures = [var.snapshot_hours, var.snapshots_kept, var.snapshot_time, var.volume_tag, var.older_versions_days]
}
