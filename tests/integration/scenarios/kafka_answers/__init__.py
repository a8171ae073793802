"""Unusual requests, with the responses that a Kafka 4.4.0 broker gave; ours are the same.

Where ours differ, the test cites the rule that requires it and gives Kafka's response beside ours.
"""
