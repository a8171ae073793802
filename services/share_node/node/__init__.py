"""One process of the cluster: its roles on one store, from its settings to its end."""
