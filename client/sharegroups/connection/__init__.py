"""The client's connections: the cluster's nodes and leaders, calls and streams to them, security."""
