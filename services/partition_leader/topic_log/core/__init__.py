"""The pure parts of a topic-partition's log: no I/O, no clock, no protobuf. The modules of `topic_log` use them."""
