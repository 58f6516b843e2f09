# One host that runs the project's docker-compose.yml, and its data volume, which outlives it.
#
# All that is to be kept (Docker's volumes, the release as laid out) lies on the data volume, so the machine can be
# replaced at any time. Nothing listens to the outside: people come by Session Manager. The machine's role may read its
# secrets, the releases and what release is wanted, and may put metrics of its own namespace. user-data.tf says what
# the machine does when it starts.

data "aws_caller_identity" "current" {}

data "aws_region" "current" {}

data "aws_ssm_parameter" "image" {
  name = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
}

locals {
  account    = data.aws_caller_identity.current.account_id
  region     = data.aws_region.current.name
  volume_tag = { key = "Snapshots", value = var.name }
}

resource "aws_security_group" "host" {
  name        = "${var.name}-host"
  description = "Nothing comes in. What goes out is named"
  vpc_id      = var.vpc_id

  tags = { Name = "${var.name}-host" }
}

resource "aws_vpc_security_group_egress_rule" "host" {
  for_each = merge({ https = { port = 443, cidr = "0.0.0.0/0" } }, var.may_reach)

  security_group_id = aws_security_group.host.id
  description       = each.key
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
  cidr_ipv4         = each.value.cidr
}

resource "aws_ebs_volume" "data" {
  availability_zone = var.availability_zone
  type              = "gp3"
  size              = var.data_volume_gib
  encrypted         = true
  snapshot_id       = var.data_snapshot_id
  final_snapshot    = var.final_snapshot # whatever deletes or replaces it leaves a copy

  tags = {
    Name                   = "${var.name}-data"
    (local.volume_tag.key) = local.volume_tag.value
  }
}

resource "aws_instance" "host" {
  ami                         = data.aws_ssm_parameter.image.insecure_value
  instance_type               = var.instance_type
  subnet_id                   = var.subnet_id # which gives no public address
  vpc_security_group_ids      = [aws_security_group.host.id]
  iam_instance_profile        = aws_iam_instance_profile.host.name
  ebs_optimized               = true
  user_data_base64            = base64gzip(local.user_data)
  user_data_replace_on_change = true

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1 # containers do not reach it, so they cannot take the machine's role
  }

  root_block_device {
    volume_type = "gp3"
    volume_size = var.root_volume_gib
    encrypted   = true
  }

  tags = { Name = var.name }

  lifecycle {
    ignore_changes = [ami] # a newer image is taken when the machine is replaced, not by any plan
  }

  depends_on = [aws_iam_role_policy.host] # else its first calls are refused
}

resource "aws_volume_attachment" "data" {
  device_name                    = "/dev/sdf" # the system finds it by the volume's id
  volume_id                      = aws_ebs_volume.data.id
  instance_id                    = aws_instance.host.id
  stop_instance_before_detaching = true # its file system is closed first
}

resource "aws_ssm_parameter" "release" {
  name        = "/${var.name}/release"
  description = "What the host is to run: names and checksums of files in the bucket"
  type        = "String"
  value       = jsonencode({ release = var.release, compose = var.compose_plugin })
}

resource "aws_iam_role" "host" {
  name = "${var.name}-host"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_instance_profile" "host" {
  name = "${var.name}-host"
  role = aws_iam_role.host.name
}

resource "aws_iam_role_policy" "host" {
  name = "host"
  role = aws_iam_role.host.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        # instead of AmazonSSMManagedInstanceCore, which may read every parameter of the account
        Sid    = "SessionsAndCommands"
        Effect = "Allow"
        Action = [
          "ec2messages:AcknowledgeMessage",
          "ec2messages:DeleteMessage",
          "ec2messages:FailMessage",
          "ec2messages:GetEndpoint",
          "ec2messages:GetMessages",
          "ec2messages:SendReply",
          "ssm:UpdateInstanceInformation",
          "ssmmessages:CreateControlChannel",
          "ssmmessages:CreateDataChannel",
          "ssmmessages:OpenControlChannel",
          "ssmmessages:OpenDataChannel",
        ]
        Resource = "*" # these know no single resource
      },
      {
        Sid       = "PutMetrics"
        Effect    = "Allow"
        Action    = "cloudwatch:PutMetricData"
        Resource  = "*" # metrics are no resources: the namespace is what bounds it
        Condition = { StringEquals = { "cloudwatch:namespace" = var.namespace } }
      },
      {
        Sid      = "ReadWhatIsWanted"
        Effect   = "Allow"
        Action   = "ssm:GetParameter"
        Resource = aws_ssm_parameter.release.arn
      },
      {
        Sid      = "ReadReleases"
        Effect   = "Allow"
        Action   = "s3:GetObject"
        Resource = ["${var.bucket_arn}/releases/*", "${var.bucket_arn}/tools/*"]
      },
      {
        Sid      = "ReadItsSecrets"
        Effect   = "Allow"
        Action   = "secretsmanager:GetSecretValue"
        Resource = values(var.secret_arns)
      },
    ]
  })
}
