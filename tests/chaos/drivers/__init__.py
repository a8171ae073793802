"""Ways to run a cluster and cause faults in it: one module per driver, found by
`tests.chaos.deployment.open_deployment`."""
