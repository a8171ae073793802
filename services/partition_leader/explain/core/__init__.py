"""Finds out and describes what holds a record up, from the state of its share-partition. Pure."""
