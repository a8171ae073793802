"""Metrics of a process for Prometheus: of its hosts and calls, of its store, and the endpoint that shows them."""
