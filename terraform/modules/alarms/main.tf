# Alarms about the machine, its memory and disks, and the platform's own state.
#
# Machine and disks: from AWS and from the CloudWatch agent on the host. The platform: a timer on the host asks it once
# a minute and puts five numbers. Where a number does not come, its alarm rises too: what is not known is not well.
# Metrics carry no instance id, but for the status check, so they go on when the machine is replaced.

data "aws_caller_identity" "current" {}

locals {
  account = data.aws_caller_identity.current.account_id

  of_platform = {
    behind = {
      metric      = "Behind"
      description = "More rows of an app wait than a batch takes, or something for longer than its behind_seconds. Look at: deltaworks app status"
      minutes     = var.behind_minutes
    }
    suspended = {
      metric      = "Suspended"
      description = "A table keeps failing and is left out. Look at: deltaworks app status"
      minutes     = 3
    }
    broken = {
      metric      = "Broken"
      description = "Rows of a computed table break a critical rule. Look at: deltaworks app status"
      minutes     = 3
    }
    unwell = {
      metric      = "Unwell"
      description = "An app is stuck, dead or failed, and is not back. Look at: deltaworks app status"
      minutes     = 5 # a driver that died is back within two
    }
    unbalanced = {
      metric      = "Unbalanced"
      description = "Numbers of the ledger do not meet. Look at: deltaworks ledger"
      minutes     = 3 # one look may fall between two commits
    }
  }

  of_machine = {
    memory = {
      metric      = "mem_used_percent"
      dimensions  = {}
      threshold   = var.memory_percent_max
      description = "Memory of the host is nearly used up."
    }
    data-disk = {
      metric      = "disk_used_percent"
      dimensions  = { path = var.data_path, fstype = "xfs" }
      threshold   = var.disk_percent_max
      description = "The data volume is nearly full. Raise data_volume_gib and apply."
    }
    root-disk = {
      metric      = "disk_used_percent"
      dimensions  = { path = "/", fstype = "xfs" }
      threshold   = var.disk_percent_max
      description = "The system's disk is nearly full."
    }
  }
}

resource "aws_kms_key" "alarms" {
  description             = "Messages of the alarms of ${var.name}"
  deletion_window_in_days = 7
  enable_key_rotation     = true

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "AccountDecides"
        Effect    = "Allow"
        Principal = { AWS = "arn:aws:iam::${local.account}:root" }
        Action    = "kms:*" # the account itself; without it nobody could ever change the key
        Resource  = "*"     # in a key's own policy: this key
      },
      {
        Sid       = "AlarmsAreSent"
        Effect    = "Allow"
        Principal = { Service = "cloudwatch.amazonaws.com" } # the key that AWS manages for SNS does not let it
        Action    = ["kms:Decrypt", "kms:GenerateDataKey"]
        Resource  = "*" # in a key's own policy: this key
        Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
      },
    ]
  })
}

resource "aws_kms_alias" "alarms" {
  name          = "alias/${var.name}-alarms"
  target_key_id = aws_kms_key.alarms.key_id
}

resource "aws_sns_topic" "alarms" {
  name              = "${var.name}-alarms"
  kms_master_key_id = aws_kms_key.alarms.arn
}

resource "aws_sns_topic_policy" "alarms" {
  arn = aws_sns_topic.alarms.arn

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "AlarmsOfThisAccount"
      Effect    = "Allow"
      Principal = { Service = "cloudwatch.amazonaws.com" }
      Action    = "sns:Publish"
      Resource  = aws_sns_topic.alarms.arn
      Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
    }]
  })
}

resource "aws_sns_topic_subscription" "mail" {
  for_each = var.mail_to

  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = each.value
}

resource "aws_cloudwatch_metric_alarm" "status" {
  alarm_name          = "${var.name}-machine"
  alarm_description   = "The machine does not pass AWS' status checks, or is stopped."
  namespace           = "AWS/EC2"
  metric_name         = "StatusCheckFailed"
  dimensions          = { InstanceId = var.instance_id }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  period              = 60
  evaluation_periods  = 3
  treat_missing_data  = "breaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
}

resource "aws_cloudwatch_metric_alarm" "machine" {
  for_each = local.of_machine

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  namespace           = var.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = "Average"
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.threshold
  period              = 60
  evaluation_periods  = 5
  treat_missing_data  = "breaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
}

resource "aws_cloudwatch_metric_alarm" "platform" {
  for_each = local.of_platform

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  namespace           = var.namespace
  metric_name         = each.value.metric
  statistic           = "Minimum" # well once in a minute is well
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  period              = 60
  evaluation_periods  = each.value.minutes
  treat_missing_data  = "breaching"
  alarm_actions       = [aws_sns_topic.alarms.arn]
  ok_actions          = [aws_sns_topic.alarms.arn]
}
