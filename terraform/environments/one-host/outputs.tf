locals {
  target = "--region ${var.region} --target ${module.host.instance_id}"
}

output "airflow_command" {
  description = "Run this, leave it running, and open airflow_url. It needs the AWS command line with its session manager plugin."
  value       = "aws ssm start-session ${local.target} --document-name AWS-StartPortForwardingSession --parameters '{\"portNumber\":[\"${var.airflow_port}\"],\"localPortNumber\":[\"${var.airflow_port}\"]}'"
}

output "airflow_url" {
  description = "Airflow, while airflow_command runs. The user is admin."
  value       = "http://127.0.0.1:${var.airflow_port}"
}

output "airflow_password_command" {
  description = "Prints the password of Airflow's user admin, for who may read that secret."
  value       = "aws secretsmanager get-secret-value --region ${var.region} --secret-id ${var.name}/airflow_admin --query SecretString --output text"
}

output "shell_command" {
  description = "A shell on the host."
  value       = "aws ssm start-session ${local.target}"
}

output "deploy_command" {
  description = "Has the host lay out and start the release that was applied last."
  value       = "aws ssm send-command --region ${var.region} --instance-ids ${module.host.instance_id} --document-name AWS-RunShellScript --parameters '{\"commands\":[\"systemctl restart --no-block deltaworks.service\"]}'"
}

output "bucket" {
  description = "Bucket of the releases."
  value       = module.backup.bucket
}

output "instance_id" {
  description = "The machine."
  value       = module.host.instance_id
}

output "volume_id" {
  description = "The data volume."
  value       = module.host.volume_id
}

output "alarm_topic" {
  description = "Topic to which all alarms go."
  value       = module.alarms.topic_arn
}
