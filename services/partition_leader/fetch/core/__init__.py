"""Decides how much one ShareFetch may take, and when it has enough. Pure."""
