output "instance_id" {
  description = "The machine."
  value       = aws_instance.host.id
}

output "volume_id" {
  description = "The data volume."
  value       = aws_ebs_volume.data.id
}

output "volume_tag" {
  description = "Tag of the data volume, by which snapshots are made."
  value       = local.volume_tag
}

output "data_path" {
  description = "Where the data volume is mounted."
  value       = local.data_path
}
