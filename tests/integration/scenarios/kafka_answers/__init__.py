"""Requests at the edges of the protocol, with the answers that a Kafka 4.4.0 broker gave; ours are the same.

Where ours differ, the test names the rule that requires it and shows Kafka's answer beside it.
"""
