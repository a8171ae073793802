"""The log of a topic-partition, kept in two streams of the store: append, read, find, trim, load (CM-40…CM-47)."""
