"""Nodes and stores that do one thing wrong, run for real: the judge of the chaos experiments must refuse each."""
