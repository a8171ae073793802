"""The log of a topic-partition on two streams of the store: append, read, find, trim, rebuild (CM-40…CM-47)."""
