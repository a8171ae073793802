"""Decides which partitions a member fetches here, and records which members are gone. Pure."""
