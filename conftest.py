"""Plugins that pytest's main process needs too: when tests run in other processes, it collects nothing below
`tests`."""

pytest_plugins = ["tests.side_by_side", "tests.tiers", "tests.chaos.recovery_table", "tools.conformance.plugin"]
