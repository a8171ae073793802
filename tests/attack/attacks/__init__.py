"""The attacks, grouped by their means."""
