variable "name" {
  description = "What every resource of this environment is called, or begins with."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,22}[a-z0-9]$", var.name))
    error_message = "name is 3 to 24 lower-case letters, digits and hyphens, begins with a letter and ends with no hyphen."
  }
}

variable "vpc_id" {
  description = "The network."
  type        = string
}

variable "subnet_id" {
  description = "A subnet without public addresses, from which port 443 of the internet can be reached."
  type        = string
}

variable "availability_zone" {
  description = "Zone of the subnet, in which the data volume lies too."
  type        = string
}

variable "instance_type" {
  description = "Kind of machine, with x86 processors. The platform and the shop need some 12 GiB of memory."
  type        = string
  default     = "m6i.xlarge"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]*[0-9][a-z0-9-]*\\.[a-z0-9-]+$", var.instance_type)) && !can(regex("^[a-z]+[0-9]+g", var.instance_type))
    error_message = "instance_type is such as m6i.xlarge; those with a g after their number (Graviton) are not x86."
  }
}

variable "root_volume_gib" {
  description = "Size of the system's disk, which holds nothing that is to be kept."
  type        = number
  default     = 16

  validation {
    condition     = var.root_volume_gib >= 8 && var.root_volume_gib <= 16384
    error_message = "root_volume_gib is 8 to 16384."
  }
}

variable "data_volume_gib" {
  description = "Size of the data volume. It can be raised at any time, never lowered; the file system follows at the next start."
  type        = number
  default     = 100

  validation {
    condition     = var.data_volume_gib >= 20 && var.data_volume_gib <= 16384
    error_message = "data_volume_gib is 20 to 16384."
  }
}

variable "data_snapshot_id" {
  description = "Make the data volume from this snapshot. Another one replaces the volume. Leave it as it is afterwards."
  type        = string
  default     = null

  validation {
    condition     = var.data_snapshot_id == null || can(regex("^snap-[0-9a-f]{8,17}$", var.data_snapshot_id))
    error_message = "data_snapshot_id is such as snap-0123456789abcdef0."
  }
}

variable "final_snapshot" {
  description = "Make a snapshot of the data volume before it is deleted or replaced."
  type        = bool
  default     = true
}

variable "may_reach" {
  description = "What the host may reach beside port 443 of the internet, by name: a port (TCP) and a block of addresses."
  type        = map(object({ port = number, cidr = string }))
  default     = {}

  validation {
    condition     = alltrue([for one in values(var.may_reach) : can(cidrhost(one.cidr, 0)) && one.port >= 1 && one.port <= 65535])
    error_message = "may_reach has ports from 1 to 65535, and blocks of addresses such as 10.1.0.0/16."
  }

  validation {
    condition     = !contains(keys(var.may_reach), "https")
    error_message = "may_reach: https is there already."
  }
}

variable "namespace" {
  description = "Namespace of the metrics that the host puts."
  type        = string
}

variable "bucket" {
  description = "Name of the bucket with releases/ and tools/."
  type        = string
}

variable "bucket_arn" {
  description = "ARN of that bucket."
  type        = string
}

variable "secret_arns" {
  description = "Secrets that the host may read, by the name of the file in which each is put."
  type        = map(string)

  validation {
    condition     = length(var.secret_arns) > 0
    error_message = "secret_arns is not empty: the platform has no passwords without."
  }
}

variable "release" {
  description = "Release to run: releases/<version>.tar.gz in the bucket, with its checksum. null before there is one."
  type        = object({ version = string, sha256 = string })
  default     = null

  validation {
    condition     = var.release == null || can(regex("^[0-9A-Za-z][0-9A-Za-z._-]*$", var.release.version))
    error_message = "release: version is of letters, digits, dots, hyphens and underscores."
  }

  validation {
    condition     = var.release == null || can(regex("^[0-9a-f]{64}$", var.release.sha256))
    error_message = "release: sha256 is 64 hexadecimal digits, as sha256sum prints them."
  }

  validation {
    condition     = var.release == null || var.compose_plugin != null
    error_message = "release needs compose_plugin, which starts it."
  }
}

variable "compose_plugin" {
  description = "Docker's compose plugin, which Amazon Linux does not have: tools/docker-compose-<version> in the bucket, with its checksum."
  type        = object({ version = string, sha256 = string })
  default     = null

  validation {
    condition     = var.compose_plugin == null || can(regex("^[0-9A-Za-z][0-9A-Za-z._-]*$", var.compose_plugin.version))
    error_message = "compose_plugin: version is of letters, digits, dots, hyphens and underscores."
  }

  validation {
    condition     = var.compose_plugin == null || can(regex("^[0-9a-f]{64}$", var.compose_plugin.sha256))
    error_message = "compose_plugin: sha256 is 64 hexadecimal digits, as sha256sum prints them."
  }
}

variable "compose_profiles" {
  description = "Profiles of docker-compose.yml to run: [\"demo\"] has the shop too."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for profile in var.compose_profiles : can(regex("^[a-z0-9_-]+$", profile))])
    error_message = "compose_profiles are names of lower-case letters, digits, hyphens and underscores."
  }
}

variable "airflow_port" {
  description = "Port of the host's loopback at which docker-compose.yml publishes Airflow."
  type        = number
  default     = 8080

  validation {
    condition     = var.airflow_port >= 1 && var.airflow_port <= 65535 && floor(var.airflow_port) == var.airflow_port
    error_message = "airflow_port is a whole number from 1 to 65535."
  }
}
