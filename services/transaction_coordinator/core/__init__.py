"""The pure part of transactions: what their record may become. No I/O, no clock, no randomness, no protobuf."""
