"""What the three services share: pure shards run over durable logs, with ownership, fencing, transport and settings."""
