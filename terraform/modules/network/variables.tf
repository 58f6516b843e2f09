variable "name" {
  description = "What every resource of this environment is called, or begins with."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,22}[a-z0-9]$", var.name))
    error_message = "name is 3 to 24 lower-case letters, digits and hyphens, begins with a letter and ends with no hyphen."
  }
}

variable "cidr" {
  description = "Private addresses of the network. A quarter is the host's subnet, a quarter that of the gateway."
  type        = string
  default     = "10.20.0.0/24"

  validation {
    condition     = can(cidrhost(var.cidr, 0)) && can(regex("^(10\\.|172\\.(1[6-9]|2[0-9]|3[01])\\.|192\\.168\\.)", var.cidr))
    error_message = "cidr is a block of private addresses, such as 10.20.0.0/24."
  }

  validation {
    condition     = try(tonumber(split("/", var.cidr)[1]) >= 16 && tonumber(split("/", var.cidr)[1]) <= 26, false)
    error_message = "cidr has a length from /16 to /26: a subnet at AWS has at least 16 addresses."
  }
}

variable "availability_zone" {
  description = "Zone of both subnets, such as eu-central-1a. The data volume lies in it."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9][a-z]$", var.availability_zone))
    error_message = "availability_zone is a region with a letter, such as eu-central-1a."
  }
}
