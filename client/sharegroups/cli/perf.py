"""`sharegroups perf`: measures how fast a running cluster stores and delivers records."""

from __future__ import annotations

import click

from sharegroups.cli.perf_consume import consume
from sharegroups.cli.perf_produce import produce


@click.group()
def perf() -> None:
    """Measure how fast a running cluster stores and delivers records."""


perf.add_command(consume)
perf.add_command(produce)
