"""Plugins of pytest that its main process needs too: it collects nothing below `tests` where tests run in others."""

pytest_plugins = ["tests.side_by_side", "tests.chaos.recovery_table", "tools.conformance.plugin"]
