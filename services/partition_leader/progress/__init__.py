"""How far share groups are in the partitions led here: figures for /metrics and for ListShareProgress (PL-950)."""
