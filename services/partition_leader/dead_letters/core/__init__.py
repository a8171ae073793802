"""Decides where dead letters go, and when they are tried again. Pure."""
