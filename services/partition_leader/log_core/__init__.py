"""The pure parts of a topic-partition's log: no I/O, no clock, no protobuf; `topic_log*.py` are the edge around it."""
