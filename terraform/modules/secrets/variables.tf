variable "name" {
  description = "What every resource of this environment is called, or begins with."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,22}[a-z0-9]$", var.name))
    error_message = "name is 3 to 24 lower-case letters, digits and hyphens, begins with a letter and ends with no hyphen."
  }
}

variable "secrets" {
  description = <<-EOT
    Secrets by name. The host has a file of this name for each.
      description  what it opens
      generated    false: its value is put by hand
      form         "password", or "fernet" for a key of 32 bytes in base64
      version      raise it, and the value is made anew
  EOT
  type = map(object({
    description = string
    generated   = optional(bool, true)
    form        = optional(string, "password")
    version     = optional(number, 1)
  }))

  validation {
    condition     = length(var.secrets) > 0 && alltrue([for name in keys(var.secrets) : can(regex("^[a-z][a-z0-9_]*$", name))])
    error_message = "secrets has at least one entry, and names are lower-case letters, digits and underscores: they become files."
  }

  validation {
    condition     = alltrue([for secret in values(var.secrets) : contains(["password", "fernet"], secret.form)])
    error_message = "secrets: form is \"password\" or \"fernet\"."
  }

  validation {
    condition     = alltrue([for secret in values(var.secrets) : secret.version >= 1 && floor(secret.version) == secret.version])
    error_message = "secrets: version is a whole number from 1 on."
  }
}

variable "recovery_days" {
  description = "For so many days a deleted secret can be brought back; 7 to 30, or 0 for not at all."
  type        = number
  default     = 7

  validation {
    condition     = var.recovery_days == 0 || (var.recovery_days >= 7 && var.recovery_days <= 30)
    error_message = "recovery_days is 0, or 7 to 30."
  }
}
