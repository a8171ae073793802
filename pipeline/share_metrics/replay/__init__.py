"""Replays the records of share-partitions: states, offsets and times at any moment."""
