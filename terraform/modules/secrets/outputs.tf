output "arns" {
  description = "ARN of each secret, by name. Not its value."
  value       = { for name, secret in aws_secretsmanager_secret.this : name => secret.arn }
}
