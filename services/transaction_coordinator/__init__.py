"""Transactions of producers: their durable records, and the markers that carry a decision to every partition (CM-44).

A record stands in the store, not in a process: any node may change it, by compare-and-set. So no node owns a
transaction, and whoever finds an unfinished decision may finish it.
"""
