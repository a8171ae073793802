"""Kafka's messages: a table of fields, and the readers and writers made from it. Pure: bytes in, values out."""
