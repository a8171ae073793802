"""The share consumer's parts: membership, sessions with leaders, fetched records, acknowledgements, locks."""
