"""Bugs planted on purpose, one at a time, in the product's own source: the simulator must find each of them.

A mutant is a small change of text, applied while the module is imported in a fresh process; the product has no switch
for it. A mutant whose text no longer occurs exactly once in the product is an error, never silently harmless.
"""
