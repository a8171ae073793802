"""Kafka's wire protocol, as a second listener of a node: Kafka's own clients and tools use it unmodified."""
