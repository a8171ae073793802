"""Explains why records are or are not delivered, and counts a group's backlog (PL-820, PL-827). Changes nothing."""
