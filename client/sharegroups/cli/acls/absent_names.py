"""Notes that a topic or group named in an entry does not exist, with the name that may have been meant (CT-171)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from kip932.acls import WILDCARD, ResourceType
from kip932.errors import GroupIdNotFoundError, KafkaError, UnknownTopicOrPartitionError
from kip932.nearest_name import did_you_mean
from sharegroups.admin import Admin
from sharegroups.cli.acls.choosing import Resource
from sharegroups.cli.similar_topics import similar_topics

#: More names than this are not looked up: a script that adds entries for many knows what they are called.
_DESCRIBED_MAX: Final = 100


def absence_notes(admin: Admin, resources: Iterable[Resource]) -> list[str]:
    """Return a note for each of these topics and groups that does not exist. Those that this caller may not see, or
    that could not be looked up, get no note."""
    wanted = list(dict.fromkeys(each for each in resources if each.name not in {None, WILDCARD}))[:_DESCRIBED_MAX]
    topics, groups = (
        [each.name or "" for each in wanted if each.type is kind] for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    )
    return [*_topic_notes(admin, topics), *_group_notes(admin, groups)]


def _topic_notes(admin: Admin, names: list[str]) -> Iterator[str]:
    if not names:
        return
    with suppress(KafkaError):
        found = admin.list_topics(names)
        absent = [name for name in names if isinstance(found[name].error, UnknownTopicOrPartitionError)]
        yield from (_note("topic", name, hint) for name, hint in similar_topics(admin, absent).items())


def _group_notes(admin: Admin, names: list[str]) -> Iterator[str]:
    if not names:
        return
    with suppress(KafkaError):
        found = admin.describe_share_groups(names)
        absent = [name for name in names if isinstance(found[name], GroupIdNotFoundError)]
        known = [group.group_id for group in admin.list_groups(None, ["share"]).valid()] if absent else []
        yield from (_note("group", name, did_you_mean(name, known)) for name in absent)


def _note(noun: str, name: str, hint: str) -> str:
    return f"Note: {noun} {name!r} does not exist (yet).{hint}"
