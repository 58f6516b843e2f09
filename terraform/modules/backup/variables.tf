variable "name" {
  description = "What every resource of this environment is called, or begins with."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,22}[a-z0-9]$", var.name))
    error_message = "name is 3 to 24 lower-case letters, digits and hyphens, begins with a letter and ends with no hyphen."
  }
}

variable "volume_tag" {
  description = "Tag of the volumes of which snapshots are made."
  type        = object({ key = string, value = string })

  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9]*$", var.volume_tag.key)) && length(var.volume_tag.value) > 0
    error_message = "volume_tag has a key of letters and digits, and a value."
  }
}

variable "snapshot_hours" {
  description = "Hours from one snapshot to the next. What came later than the last one is lost with the volume."
  type        = number
  default     = 4

  validation {
    condition     = contains([1, 2, 3, 4, 6, 8, 12, 24], var.snapshot_hours)
    error_message = "snapshot_hours is 1, 2, 3, 4, 6, 8, 12 or 24."
  }
}

variable "snapshot_time" {
  description = "Time of day (UTC) of a snapshot, from which the others are counted."
  type        = string
  default     = "03:15"

  validation {
    condition     = can(regex("^([01][0-9]|2[0-3]):[0-5][0-9]$", var.snapshot_time))
    error_message = "snapshot_time is a time of day such as 03:15."
  }
}

variable "snapshots_kept" {
  description = "So many snapshots are kept; older ones are deleted."
  type        = number
  default     = 42

  validation {
    condition     = var.snapshots_kept >= 2 && var.snapshots_kept <= 1000 && floor(var.snapshots_kept) == var.snapshots_kept
    error_message = "snapshots_kept is a whole number from 2 to 1000."
  }
}

variable "older_versions_days" {
  description = "Files of the bucket that were written over or deleted are kept for so many days more."
  type        = number
  default     = 90

  validation {
    condition     = var.older_versions_days >= 1 && floor(var.older_versions_days) == var.older_versions_days
    error_message = "older_versions_days is a whole number from 1 on."
  }
}
