"""The fields of Kafka's messages, by subject. `fields.py` describes the format and reads it."""
