"""Durable logs and ownership on Redis or Valkey.

`connection` defines the interface of a store: commands in, replies out. `resp` and `topology` talk to real stores (the
only modules that import redis-py); tests use a twin in memory, `tests/twin`. `lease_commands`, `store_calls`, `flush`,
`connection_check` and `writer` send commands and evaluate replies. Hosts use `log` and `cluster_store`.
"""
