"""Share-partitions of this process: ShareFetch, ShareAcknowledge, sessions, locks and their deadlines (KIP-932)."""
