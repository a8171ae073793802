"""Benchmarks, run for a moment."""
