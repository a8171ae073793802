"""Decides where dead letters go, and when they are retried. Pure."""
