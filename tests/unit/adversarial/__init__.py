"""Scenarios of whole clusters on a virtual clock, step by step; what is left at their end is looked at."""
