"""How a cluster is run and hurt: one module per driver, found by `tests.chaos.deployment.open_deployment`."""
