mock_provider "aws" {}

variables {
  name = "test"
  secrets = {
    deltaworks = { description = "A role", generated = false }
    reader     = { description = "Another role", version = 3 }
  }
}

run "each_has_its_name_and_can_be_brought_back" {
  command = apply

  assert {
    condition     = { for name, secret in aws_secretsmanager_secret.this : name => secret.name } == { deltaworks = "test/deltaworks", reader = "test/reader" }
    error_message = "Secrets are not called by environment and name."
  }

  assert {
    condition     = alltrue([for secret in aws_secretsmanager_secret.this : secret.recovery_window_in_days == 7])
    error_message = "A secret that is deleted is gone at once."
  }

  assert {
    condition     = output.arns == { for name, secret in aws_secretsmanager_secret.this : name => secret.arn }
    error_message = "The output is not each secret's ARN."
  }

  assert {
    condition     = { for name, one in aws_secretsmanager_secret_version.this : name => one.secret_string_wo_version } == { reader = 3 }
    error_message = "A value was made for a secret that is put by hand, or none for another."
  }
}

run "what_is_refused" {
  command = plan

  variables {
    secrets       = { "../passwd" = { description = "No file", form = "rsa", version = 1.5 } }
    recovery_days = 3
  }

  expect_failures = [var.secrets, var.recovery_days]
}
