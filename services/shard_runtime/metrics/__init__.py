"""A process's metrics for Prometheus, about its hosts, calls and store, and the endpoint that serves them."""
