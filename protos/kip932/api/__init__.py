"""Client-facing protocol: what consumers, producers and tools speak with the cluster."""
