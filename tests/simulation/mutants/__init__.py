"""Bugs planted on purpose, one at a time, in the product's own source: the simulator must find each of them.

A mutant is a small change of text, applied while the module is imported in a fresh process; the product has no switch
for it. One whose text no longer stands in the product exactly once is an error, never silently harmless.
"""
