"""The runtime of all three services: it runs pure shards over durable logs, with ownership, fencing and transport."""
