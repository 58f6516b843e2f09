variable "region" {
  description = "Region of AWS, such as eu-central-1."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.region))
    error_message = "region is such as eu-central-1."
  }
}

variable "zone" {
  description = "Zone of the region, by its letter. Host and data volume lie in it."
  type        = string
  default     = "a"

  validation {
    condition     = can(regex("^[a-z]$", var.zone))
    error_message = "zone is one letter, such as a."
  }
}

variable "name" {
  description = "What every resource of this environment is called, or begins with."
  type        = string
  default     = "deltaworks"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,22}[a-z0-9]$", var.name))
    error_message = "name is 3 to 24 lower-case letters, digits and hyphens, begins with a letter and ends with no hyphen."
  }
}

variable "cidr" {
  description = "Private addresses of the network."
  type        = string
  default     = "10.20.0.0/24"
}

variable "may_reach" {
  description = "What the host may reach beside port 443 of the internet, by name: a port (TCP) and a block of addresses."
  type        = map(object({ port = number, cidr = string }))
  default     = {}
}

variable "instance_type" {
  description = "Kind of machine, with x86 processors. The platform and the shop need some 12 GiB of memory."
  type        = string
  default     = "m6i.xlarge"
}

variable "data_volume_gib" {
  description = "Size of the data volume. It can be raised at any time, never lowered; the file system follows at the next start."
  type        = number
  default     = 100
}

variable "data_snapshot_id" {
  description = "Make the data volume from this snapshot. Another one replaces the volume. Leave it as it is afterwards."
  type        = string
  default     = null
}

variable "final_snapshot" {
  description = "Make a snapshot of the data volume before it is deleted or replaced."
  type        = bool
  default     = true
}

variable "release" {
  description = "Release to run: releases/<version>.tar.gz in the bucket, with its checksum. null before there is one."
  type        = object({ version = string, sha256 = string })
  default     = null
}

variable "compose_plugin" {
  description = "Docker's compose plugin, which Amazon Linux does not have: tools/docker-compose-<version> in the bucket, with its checksum."
  type        = object({ version = string, sha256 = string })
  default     = null
}

variable "compose_profiles" {
  description = "Profiles of docker-compose.yml to run: [\"demo\"] has the shop too."
  type        = list(string)
  default     = []
}

variable "airflow_port" {
  description = "Port of the host's loopback at which docker-compose.yml publishes Airflow."
  type        = number
  default     = 8080
}

variable "snapshot_hours" {
  description = "Hours from one snapshot to the next. What came later than the last one is lost with the volume."
  type        = number
  default     = 4
}

variable "snapshots_kept" {
  description = "So many snapshots are kept; older ones are deleted."
  type        = number
  default     = 42
}

variable "older_versions_days" {
  description = "Files of the bucket that were written over or deleted are kept for so many days more."
  type        = number
  default     = 90
}

variable "secrets_recovery_days" {
  description = "For so many days a deleted secret can be brought back; 7 to 30, or 0 for not at all."
  type        = number
  default     = 7
}

variable "alarm_mail_to" {
  description = "Who is told of alarms. Each address gets one mail first, in which it has to say yes."
  type        = set(string)
  default     = []
}

variable "behind_minutes" {
  description = "For so many minutes an app may be behind before anybody is told."
  type        = number
  default     = 10
}

variable "disk_percent_max" {
  description = "So much of a disk may be used."
  type        = number
  default     = 80
}
