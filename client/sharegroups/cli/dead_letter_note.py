"""The note printed when a group gets a dead-letter topic that does not exist yet (PL-903, PL-906)."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Final

from kip932.errors import UnknownTopicOrPartitionError
from kip932.ids import RESOURCE_GROUP
from sharegroups.admin import Admin
from sharegroups.admin_values import OP_DELETE, AlterConfig, ConfigResource

_NAME: Final = "errors.deadletterqueue.topic.name"
_ENABLE: Final = "errors.deadletterqueue.group.enable"
_CREATED: Final = "errors.deadletterqueue.auto.create.topics.enable"


def dead_letter_note(admin: Admin, resource: ConfigResource, changes: Sequence[AlterConfig]) -> str:
    """Return a note when these changes name a missing dead-letter topic that no node will create; else "".

    The name is accepted all the same, as in Kafka, since the topic may be created later. Raises KafkaError.
    """
    named = [each.value for each in changes if each.name == _NAME and each.operation != OP_DELETE and each.value]
    if resource.type != RESOURCE_GROUP or not named:
        return ""
    topic = str(named[0])
    wanted, cluster = ConfigResource.topic(topic), ConfigResource.broker()
    if not isinstance(admin.describe_configs([wanted])[wanted], UnknownTopicOrPartitionError):
        return ""
    defaults = admin.describe_configs([cluster])[cluster]
    if not isinstance(defaults, Exception) and _CREATED in defaults and defaults[_CREATED].value == "true":
        return ""
    return (
        f"Note: topic {topic!r} does not exist; until it does, dead letters of group {resource.name!r} wait. "
        f"Create it: sharegroups topics create {quote(topic)} --config {_ENABLE}=true"
    )
