"""Checks of requests as plain values. Pure."""
