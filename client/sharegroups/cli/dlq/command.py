"""The command group `sharegroups dlq` (CT-120)."""

from __future__ import annotations

import click

from sharegroups.cli.dlq.list_letters import list_
from sharegroups.cli.dlq.purge import purge
from sharegroups.cli.dlq.redrive import redrive
from sharegroups.cli.dlq.show import show


@click.group()
def dlq() -> None:
    """Dead letters: show records that were rejected or delivered too many times, send them back, delete them."""


for _command in (list_, show, redrive, purge):
    dlq.add_command(_command)
