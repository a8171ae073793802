"""The partition leader: serves ShareFetch and ShareAcknowledge for the partitions this process leads (KIP-932)."""
