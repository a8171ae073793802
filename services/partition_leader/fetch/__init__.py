"""One ShareFetch: what it may take, its reads, its waits, and what it has acquired (PL-201 … PL-257)."""
