"""Durable logs and ownership on Redis or Valkey.

`connection.py` says what a store is to us: commands in, replies out. `resp.py` and `topology.py` speak to real stores
(the only modules that import redis-py); `shard_runtime.memory` is the twin. All judgement stands between: `lease.py`,
`jobs.py`, `flush.py`, `check.py`, `writer.py`, and what hosts see: `log.py`, `cluster_store.py`.
"""
