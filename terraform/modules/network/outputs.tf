output "vpc_id" {
  description = "The network."
  value       = aws_vpc.this.id
}

output "subnet_id" {
  description = "The host's subnet, which has no public addresses. Known when the way out of it is there."
  value       = aws_subnet.host.id

  depends_on = [aws_route_table_association.host] # a host that starts earlier finds no packages
}
