"""One ShareFetch: what it may acquire, its reads, its waits, and its results (PL-201 … PL-257)."""
