# A network that nobody can enter from outside.
#
# The host's subnet has no public addresses. What the host asks for leaves through a NAT gateway; nothing comes in.
# The public subnet holds that gateway and nothing else. The default security group has no rule, so what is put into
# this network without a group of its own reaches nothing.

resource "aws_vpc" "this" {
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true

  tags = { Name = var.name }
}

resource "aws_default_security_group" "closed" {
  vpc_id = aws_vpc.this.id

  tags = { Name = "${var.name}-default-closed" }
}

resource "aws_internet_gateway" "this" {
  vpc_id = aws_vpc.this.id

  tags = { Name = var.name }
}

resource "aws_subnet" "gateway" {
  vpc_id                  = aws_vpc.this.id
  availability_zone       = var.availability_zone
  cidr_block              = cidrsubnet(var.cidr, 2, 0)
  map_public_ip_on_launch = false

  tags = { Name = "${var.name}-gateway" }
}

resource "aws_subnet" "host" {
  vpc_id                  = aws_vpc.this.id
  availability_zone       = var.availability_zone
  cidr_block              = cidrsubnet(var.cidr, 2, 1)
  map_public_ip_on_launch = false

  tags = { Name = "${var.name}-host" }
}

resource "aws_eip" "nat" {
  domain = "vpc"

  tags = { Name = "${var.name}-nat" }
}

resource "aws_nat_gateway" "this" {
  allocation_id = aws_eip.nat.id
  subnet_id     = aws_subnet.gateway.id

  tags = { Name = var.name }

  depends_on = [aws_internet_gateway.this] # it is of no use before
}

resource "aws_route_table" "gateway" {
  vpc_id = aws_vpc.this.id

  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.this.id
  }

  tags = { Name = "${var.name}-gateway" }
}

resource "aws_route_table" "host" {
  vpc_id = aws_vpc.this.id

  route {
    cidr_block     = "0.0.0.0/0"
    nat_gateway_id = aws_nat_gateway.this.id
  }

  tags = { Name = "${var.name}-host" }
}

resource "aws_route_table_association" "gateway" {
  subnet_id      = aws_subnet.gateway.id
  route_table_id = aws_route_table.gateway.id
}

resource "aws_route_table_association" "host" {
  subnet_id      = aws_subnet.host.id
  route_table_id = aws_route_table.host.id
}
