"""The client-facing protocol: between consumers, producers or tools and the cluster."""
