"""Computes the figures; decides what is unknown."""
