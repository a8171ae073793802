"""Gauges and counters for Prometheus, and the port at which it reads them."""
