"""The attacks, grouped by what they use."""
