output "bucket" {
  description = "Name of the bucket with releases."
  value       = aws_s3_bucket.releases.bucket
}

output "bucket_arn" {
  description = "ARN of the bucket with releases."
  value       = aws_s3_bucket.releases.arn
}
