# One host at AWS that runs the project's docker-compose.yml, with what belongs to it. docs/how-to/one-host-at-aws.md
# goes through it.

terraform {
  backend "s3" {} # the rest is told at init: -backend-config=backend.hcl, see backend.hcl.example
}

provider "aws" {
  region = var.region

  default_tags {
    tags = { Project = "deltaworks", Environment = var.name }
  }
}

locals {
  namespace = "Deltaworks/${var.name}"
}

module "network" {
  source = "../../modules/network"

  name              = var.name
  cidr              = var.cidr
  availability_zone = "${var.region}${var.zone}"
}

module "secrets" {
  source = "../../modules/secrets"

  name          = var.name
  secrets       = local.secrets
  recovery_days = var.secrets_recovery_days
}

module "host" {
  source = "../../modules/host"

  name              = var.name
  vpc_id            = module.network.vpc_id
  subnet_id         = module.network.subnet_id
  availability_zone = "${var.region}${var.zone}"
  instance_type     = var.instance_type
  data_volume_gib   = var.data_volume_gib
  data_snapshot_id  = var.data_snapshot_id
  final_snapshot    = var.final_snapshot
  may_reach         = var.may_reach
  namespace         = local.namespace
  bucket            = module.backup.bucket
  bucket_arn        = module.backup.bucket_arn
  secret_arns       = module.secrets.arns
  release           = var.release
  compose_plugin    = var.compose_plugin
  compose_profiles  = var.compose_profiles
  airflow_port      = var.airflow_port
}

module "backup" {
  source = "../../modules/backup"

  name                = var.name
  volume_tag          = module.host.volume_tag
  snapshot_hours      = var.snapshot_hours
  snapshots_kept      = var.snapshots_kept
  older_versions_days = var.older_versions_days
}

module "alarms" {
  source = "../../modules/alarms"

  name             = var.name
  namespace        = local.namespace
  instance_id      = module.host.instance_id
  data_path        = module.host.data_path
  mail_to          = var.alarm_mail_to
  behind_minutes   = var.behind_minutes
  disk_percent_max = var.disk_percent_max
}
