"""The share-partition's core beside a naive model of it: one record each, and a comparison after every step."""
