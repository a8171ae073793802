"""The pure part of transactions: the changes of their records. No I/O, no clock, no randomness, no protobuf."""
