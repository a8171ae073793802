"""Bugs planted on purpose, one at a time, in the product's own source; the simulator or a test must find each of them.

A mutant is a small change to the source text, applied when the module is imported in a new process; the product has no
switch for it. If a mutant's text does not occur exactly once in the product, this is an error, so no mutant is silently
ineffective.
"""
