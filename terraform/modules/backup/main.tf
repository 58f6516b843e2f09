# What is kept apart from the host: snapshots of its data volume, and a bucket with releases.
#
# One volume holds the lake, Kafka and both databases, so a snapshot has all of them as of one moment, as after a power
# cut. Snapshots of an encrypted volume are encrypted. The bucket keeps older versions of what is written over or
# deleted, can be read by nobody outside the account, and answers by TLS only.

data "aws_caller_identity" "current" {}

data "aws_region" "current" {}

locals {
  account = data.aws_caller_identity.current.account_id
  region  = data.aws_region.current.name
  bucket  = "${var.name}-${local.account}-${local.region}" # names of buckets are shared by all accounts
}

resource "aws_s3_bucket" "releases" {
  bucket        = local.bucket
  force_destroy = false
}

resource "aws_s3_bucket_versioning" "releases" {
  bucket = aws_s3_bucket.releases.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "releases" {
  bucket = aws_s3_bucket.releases.id

  rule {
    bucket_key_enabled = true

    apply_server_side_encryption_by_default {
      sse_algorithm = "aws:kms" # by the account's own key for S3
    }
  }
}

resource "aws_s3_bucket_public_access_block" "releases" {
  bucket                  = aws_s3_bucket.releases.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "releases" {
  bucket = aws_s3_bucket.releases.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "releases" {
  bucket = aws_s3_bucket.releases.id

  rule {
    id     = "older-versions"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.older_versions_days
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }

  depends_on = [aws_s3_bucket_versioning.releases]
}

resource "aws_s3_bucket_policy" "releases" {
  bucket = aws_s3_bucket.releases.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "TlsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = ["arn:aws:s3:::${local.bucket}", "arn:aws:s3:::${local.bucket}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })

  depends_on = [aws_s3_bucket_public_access_block.releases] # two changes of one bucket's policy at a time are refused
}

resource "aws_iam_role" "snapshots" {
  name = "${var.name}-snapshots"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "dlm.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
    }]
  })
}

resource "aws_iam_role_policy" "snapshots" {
  name = "snapshots"
  role = aws_iam_role.snapshots.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "FindVolumes"
        Effect   = "Allow"
        Action   = ["ec2:DescribeInstances", "ec2:DescribeSnapshots", "ec2:DescribeVolumes"]
        Resource = "*" # these know no single resource
      },
      {
        Sid       = "MakeSnapshots"
        Effect    = "Allow"
        Action    = "ec2:CreateSnapshot"
        Resource  = "arn:aws:ec2:${local.region}:${local.account}:volume/*"
        Condition = { StringEquals = { "aws:ResourceTag/${var.volume_tag.key}" = var.volume_tag.value } }
      },
      {
        Sid      = "NameSnapshots"
        Effect   = "Allow"
        Action   = ["ec2:CreateSnapshot", "ec2:CreateTags"]
        Resource = "arn:aws:ec2:${local.region}::snapshot/*"
      },
      {
        Sid       = "DeleteOldSnapshots"
        Effect    = "Allow"
        Action    = "ec2:DeleteSnapshot"
        Resource  = "arn:aws:ec2:${local.region}::snapshot/*"
        Condition = { StringEquals = { "aws:ResourceTag/ScheduledBy" = "${var.name}-snapshots" } }
      },
    ]
  })
}

resource "aws_dlm_lifecycle_policy" "snapshots" {
  description        = "Snapshots of the data volume of ${var.name}"
  execution_role_arn = aws_iam_role.snapshots.arn
  state              = "ENABLED"

  policy_details {
    resource_types = ["VOLUME"]
    target_tags    = { (var.volume_tag.key) = var.volume_tag.value }

    schedule {
      name      = "every ${var.snapshot_hours} hours"
      copy_tags = true

      create_rule {
        interval      = var.snapshot_hours
        interval_unit = "HOURS"
        times         = [var.snapshot_time]
      }

      retain_rule {
        count = var.snapshots_kept
      }

      tags_to_add = { ScheduledBy = "${var.name}-snapshots" } # only these may be deleted
    }
  }

  depends_on = [aws_iam_role_policy.snapshots]
}
