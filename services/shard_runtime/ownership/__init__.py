"""Ownership of shards: leases that are claimed, renewed, handed over and lost (CM-3, CM-4, CM-11, CM-12)."""
