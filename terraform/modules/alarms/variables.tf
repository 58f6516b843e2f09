variable "name" {
  description = "What every resource of this environment is called, or begins with."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,22}[a-z0-9]$", var.name))
    error_message = "name is 3 to 24 lower-case letters, digits and hyphens, begins with a letter and ends with no hyphen."
  }
}

variable "namespace" {
  description = "Namespace of the metrics that the host puts."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9/_.-]*$", var.namespace)) && !startswith(var.namespace, "AWS/")
    error_message = "namespace begins with a letter and not with AWS/, which is Amazon's own."
  }
}

variable "instance_id" {
  description = "The machine whose status checks are watched."
  type        = string
}

variable "data_path" {
  description = "Where the data volume is mounted."
  type        = string

  validation {
    condition     = startswith(var.data_path, "/") && var.data_path != "/"
    error_message = "data_path is a folder, given from the root on."
  }
}

variable "mail_to" {
  description = "Who is told. Each address gets one mail first, in which it has to say yes."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for address in var.mail_to : can(regex("^[^@\\s]+@[^@\\s]+\\.[^@\\s]+$", address))])
    error_message = "mail_to has addresses such as data@example.com."
  }
}

variable "behind_minutes" {
  description = "For so many minutes an app may be behind before anybody is told."
  type        = number
  default     = 10

  validation {
    condition     = var.behind_minutes >= 1 && var.behind_minutes <= 1440 && floor(var.behind_minutes) == var.behind_minutes
    error_message = "behind_minutes is a whole number from 1 to 1440."
  }
}

variable "memory_percent_max" {
  description = "So much of the host's memory may be used."
  type        = number
  default     = 92

  validation {
    condition     = var.memory_percent_max >= 1 && var.memory_percent_max < 100
    error_message = "memory_percent_max is at least 1 and less than 100."
  }
}

variable "disk_percent_max" {
  description = "So much of a disk may be used."
  type        = number
  default     = 80

  validation {
    condition     = var.disk_percent_max >= 1 && var.disk_percent_max < 100
    error_message = "disk_percent_max is at least 1 and less than 100."
  }
}
