"""Durable logs and ownership on Redis or Valkey.

`connection` says what a store is to us: commands in, replies out. `resp` and `topology` speak to real stores (the only
modules that import redis-py); `shard_runtime.record_log.memory` is the twin. Between them all is judged
(`lease_commands`, `store_calls`, `flush`, `connection_check`, `writer`) for what hosts see: `log` and `cluster_store`.
"""
