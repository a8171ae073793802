"""Share-partitions of this process: each one's host, locks and deadlines, reports (KIP-932)."""
