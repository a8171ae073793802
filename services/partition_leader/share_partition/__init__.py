"""The share-partitions of this process: each one's host, locks and deadlines, and reports (KIP-932)."""
