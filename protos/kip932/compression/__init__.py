"""Compresses the records of a batch in Kafka's frames, and decompresses them within bounds (CM-112, CM-116)."""
