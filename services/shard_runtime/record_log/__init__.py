"""Durable logs with fenced ownership: what hosts ask of them (`protocol`), on Redis or Valkey (`redis`), in memory."""
