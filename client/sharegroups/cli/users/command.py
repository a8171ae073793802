"""The command group `sharegroups users` (CT-138)."""

from __future__ import annotations

import click

from sharegroups.cli.group import ToolGroup
from sharegroups.cli.users.add import add
from sharegroups.cli.users.list_users import list_
from sharegroups.cli.users.remove import remove


@click.group(cls=ToolGroup)
def users() -> None:
    """Add, list and remove users who call with a name and a password.

    The user alice is the principal User:alice in access control entries and in super.users.
    """


for _command in (add, list_, remove):
    users.add_command(_command)
