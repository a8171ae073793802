"""Transactions of producers: their durable records, and the markers that carry a decision to every partition (CM-44).

Records live in the store and no process owns them: any node may change one by compare-and-set. So no node owns a
transaction, and any node that finds an unfinished decision may finish it.
"""
