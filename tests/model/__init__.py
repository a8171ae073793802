"""Compares the share-partition's core after every step with a naive model of it, which keeps one entry per record."""
