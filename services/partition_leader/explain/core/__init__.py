"""Finds out and says what holds a record up, from the state of its share-partition. Pure."""
