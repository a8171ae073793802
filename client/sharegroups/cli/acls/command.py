"""The command group `sharegroups acls` (CT-137)."""

from __future__ import annotations

import click

from sharegroups.cli.acls.add import add
from sharegroups.cli.acls.explain import explain
from sharegroups.cli.acls.list_acls import list_
from sharegroups.cli.acls.remove import remove
from sharegroups.cli.kafka_layout import KafkaLayout


class _Kafkas(KafkaLayout):
    """The actions of kafka-acls.sh."""

    actions = ("add", "list", "remove")


@click.group(cls=_Kafkas)
def acls() -> None:
    """Add, list and remove access control entries, and explain what they decide.

    They have an effect while the nodes have access.control.enable=true. Kafka's options work too:
    sharegroups acls --add --allow-principal User:alice --operation Read --topic orders.
    """


for _command in (add, list_, remove, explain):
    acls.add_command(_command)
