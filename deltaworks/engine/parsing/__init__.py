"""From Kafka's bytes to typed rows; `deltaworks.engine.parse` is the door."""
