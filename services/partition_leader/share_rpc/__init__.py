"""ShareFetch and ShareAcknowledge as clients send them: messages, checks, and the order of steps in a request
(KIP-932)."""
