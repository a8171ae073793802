"""A process's metrics for Prometheus: of its hosts and calls, of its store, and the endpoint that serves them."""
