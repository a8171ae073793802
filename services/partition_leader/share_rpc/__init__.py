"""ShareFetch and ShareAcknowledge as a client sends them: messages, checks, the order of one request (KIP-932)."""
