mock_provider "aws" {
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:eu-central-1:123456789012:test-alarms" }
  }

  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:123456789012:key/00000000-0000-0000-0000-000000000000" }
  }
}

variables {
  name        = "test"
  namespace   = "Deltaworks/test"
  instance_id = "i-0123456789abcdef0"
  data_path   = "/srv/deltaworks"
  mail_to     = ["data@example.com"]
}

run "machine_disks_and_platform_are_watched" {
  command = apply

  assert {
    condition = output.names == tolist([
      "test-behind", "test-broken", "test-data-disk", "test-machine", "test-memory", "test-root-disk", "test-suspended", "test-unbalanced", "test-unwell",
    ])
    error_message = "Not all that is to be watched is."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.machine["data-disk"].dimensions == tomap({ path = "/srv/deltaworks", fstype = "xfs" })
    error_message = "The disk that is watched is not the data volume."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.status.dimensions == tomap({ InstanceId = "i-0123456789abcdef0" })
    error_message = "Another machine is watched."
  }
}

run "what_is_not_known_is_not_well" {
  command = apply

  assert {
    condition = alltrue([
      for alarm in concat(
        [aws_cloudwatch_metric_alarm.status], values(aws_cloudwatch_metric_alarm.machine), values(aws_cloudwatch_metric_alarm.platform),
      ) : alarm.treat_missing_data == "breaching"
    ])
    error_message = "An alarm stays quiet where data is missing."
  }

  assert {
    condition = alltrue([
      for alarm in concat(
        [aws_cloudwatch_metric_alarm.status], values(aws_cloudwatch_metric_alarm.machine), values(aws_cloudwatch_metric_alarm.platform),
      ) : alarm.alarm_actions == toset([aws_sns_topic.alarms.arn]) && alarm.ok_actions == toset([aws_sns_topic.alarms.arn])
    ])
    error_message = "An alarm tells nobody that it rises, or that it is over."
  }
}

run "messages_are_encrypted_by_a_key_that_alarms_may_use" {
  command = apply

  assert {
    condition     = aws_sns_topic.alarms.kms_master_key_id == aws_kms_key.alarms.arn && aws_kms_key.alarms.enable_key_rotation
    error_message = "The topic is not encrypted by its own key, or that is never changed."
  }

  assert {
    condition = contains([
      for statement in jsondecode(aws_kms_key.alarms.policy).Statement : statement.Principal
    ], { Service = "cloudwatch.amazonaws.com" })
    error_message = "CloudWatch may not use the key, so no alarm arrives."
  }

  assert {
    condition     = toset([for mail in aws_sns_topic_subscription.mail : mail.endpoint]) == toset(["data@example.com"])
    error_message = "Others are told, or nobody is."
  }
}

run "what_is_refused" {
  command = plan

  variables {
    mail_to          = ["data.example.com"]
    namespace        = "AWS/EC2"
    disk_percent_max = 100
    data_path        = "/"
    behind_minutes   = 0
  }

  expect_failures = [var.mail_to, var.namespace, var.disk_percent_max, var.data_path, var.behind_minutes]
}
