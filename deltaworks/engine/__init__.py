"""The engine: Kafka to bronze, silver and gold, each row accounted for."""
