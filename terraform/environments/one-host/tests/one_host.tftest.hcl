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

  mock_resource "aws_instance" {
    defaults = { id = "i-0123456789abcdef0" }
  }

  mock_resource "aws_ebs_volume" {
    defaults = { id = "vol-0123456789abcdef0" }
  }

  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/test" }
  }

  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:eu-central-1:123456789012:deltaworks-alarms" }
  }

  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:123456789012:key/00000000-0000-0000-0000-000000000000" }
  }
}

variables {
  region = "eu-central-1"
}

run "outputs_say_how_to_reach_airflow" {
  command = apply

  assert {
    condition     = output.airflow_command == "aws ssm start-session --region eu-central-1 --target i-0123456789abcdef0 --document-name AWS-StartPortForwardingSession --parameters '{\"portNumber\":[\"8080\"],\"localPortNumber\":[\"8080\"]}'"
    error_message = "The command to reach Airflow is another one."
  }

  assert {
    condition     = output.airflow_url == "http://127.0.0.1:8080" && output.shell_command == "aws ssm start-session --region eu-central-1 --target i-0123456789abcdef0"
    error_message = "Airflow or the shell is reached in another way."
  }

  assert {
    condition     = output.bucket == "deltaworks-123456789012-eu-central-1" && output.volume_id == "vol-0123456789abcdef0"
    error_message = "Bucket or volume is not told."
  }
}

run "no_output_is_a_secret" {
  command = apply

  assert {
    condition     = strcontains(output.airflow_password_command, "get-secret-value") && strcontains(output.airflow_password_command, "deltaworks/airflow_admin")
    error_message = "The password is not read by who may read it."
  }

  assert {
    condition     = length(module.secrets.arns) > 10
    error_message = "There are fewer secrets than the platform has."
  }
}

run "what_is_refused" {
  command = plan

  variables {
    zone   = "eu-central-1a"
    region = "eu-central-1a"
  }

  expect_failures = [var.zone, var.region]
}
