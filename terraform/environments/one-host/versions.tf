terraform {
  required_version = ">= 1.11, < 2.0" # write-only arguments and the lock file of the S3 backend

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "5.100.0"
    }
  }
}
