"""docker-compose.yml, run for real: `make test-compose`."""
