"""The command group `sharegroups transactions` (CT-130)."""

from __future__ import annotations

import click

from sharegroups.cli.transactions.abort import abort
from sharegroups.cli.transactions.describe import describe
from sharegroups.cli.transactions.list_transactions import list_


@click.group()
def transactions() -> None:
    """Describe producers' transactions, find those that hang, and abort those left open."""


for _command in (list_, describe, abort):
    transactions.add_command(_command)
