"""Durable logs with fenced ownership: their `protocol`, and its implementation on Redis or Valkey."""
