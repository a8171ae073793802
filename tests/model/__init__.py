"""Compares the share-partition's core with a naive model of it, which keeps one entry per record, after every step."""
