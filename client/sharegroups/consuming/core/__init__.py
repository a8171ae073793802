"""Decisions of a share consumer: membership, sessions, acknowledgements, how much to fetch. Pure."""
