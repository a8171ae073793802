"""Runs pure shards over their logs: replay, decide, append, reply, compact (SC-59…65, GC-2…6)."""
