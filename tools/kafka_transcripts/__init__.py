"""Kafka's own tools at two addresses: the same commands, and what they print differently."""
