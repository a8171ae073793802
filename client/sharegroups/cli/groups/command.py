"""`sharegroups groups`: the actions of kafka-share-groups.sh (CT-3), each as a sub-command or as an option."""

from __future__ import annotations

import click

from sharegroups.cli.groups.delete import delete
from sharegroups.cli.groups.delete_offsets import delete_offsets
from sharegroups.cli.groups.describe import describe
from sharegroups.cli.groups.explain import explain
from sharegroups.cli.groups.list_groups import list_
from sharegroups.cli.groups.reset_offsets import reset_offsets
from sharegroups.cli.kafka_layout import KafkaLayout
from sharegroups.cli.versions import version_option


class _Kafkas(KafkaLayout):
    """The actions of kafka-share-groups.sh (CT-3)."""

    actions = ("list", "describe", "delete", "reset-offsets", "delete-offsets")


@click.group(cls=_Kafkas)
@version_option
def groups() -> None:
    """Describe share groups, explain why a record is not delivered, reset offsets, delete groups.

    Kafka's options work too: sharegroups groups --describe --group workers.
    """


for _command in (list_, describe, explain, delete, reset_offsets, delete_offsets):
    groups.add_command(_command)
