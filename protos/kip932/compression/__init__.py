"""How the records of a batch are compressed, and decompressed within bounds, in Kafka's frames (CM-112, CM-116)."""
