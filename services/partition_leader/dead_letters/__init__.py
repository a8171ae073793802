"""Writes the dead letters of share-partitions to their groups' dead-letter topics (partition-leader.md §9)."""
