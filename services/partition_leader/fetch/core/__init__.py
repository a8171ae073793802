"""Decides how much one ShareFetch may acquire, and when it has enough. Pure."""
