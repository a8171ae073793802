"""Durable logs with fenced ownership: their `protocol`, and its implementations on Redis or Valkey and in memory."""
