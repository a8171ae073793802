"""The client-facing protocol between consumers, producers and tools and the cluster."""
