"""Order confirmations told to a webhook and by mail: a consumer group, which acknowledges a message after the work."""
