mock_provider "aws" {}

variables {
  name              = "test"
  cidr              = "10.30.0.0/24"
  availability_zone = "eu-central-1a"
}

run "nobody_comes_in" {
  assert {
    condition     = !aws_subnet.host.map_public_ip_on_launch && !aws_subnet.gateway.map_public_ip_on_launch
    error_message = "A subnet hands out public addresses."
  }

  assert {
    condition     = length(aws_default_security_group.closed.ingress) == 0 && length(aws_default_security_group.closed.egress) == 0
    error_message = "The default security group has a rule."
  }
}

run "the_host_leaves_through_the_gateway" {
  command = apply

  assert {
    condition     = one(aws_route_table.host.route).nat_gateway_id == aws_nat_gateway.this.id
    error_message = "The host's way out is not the NAT gateway."
  }

  assert {
    condition     = aws_nat_gateway.this.subnet_id == aws_subnet.gateway.id && output.subnet_id == aws_subnet.host.id
    error_message = "Gateway and host are not in the subnets that are meant for them."
  }

  assert {
    condition     = aws_subnet.host.cidr_block == "10.30.0.64/26" && aws_subnet.gateway.cidr_block == "10.30.0.0/26"
    error_message = "The subnets are not quarters of the network."
  }
}

run "what_is_refused" {
  command = plan

  variables {
    cidr              = "8.8.8.0/24"
    availability_zone = "eu-central-1"
    name              = "1-test"
  }

  expect_failures = [var.cidr, var.availability_zone, var.name]
}

run "too_small_a_network_is_refused" {
  command = plan

  variables {
    cidr = "10.30.0.0/27"
  }

  expect_failures = [var.cidr]
}
