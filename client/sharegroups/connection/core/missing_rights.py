"""The text of an error about a missing right: what the server said, and what to ask for (CL-143).

A server's text names the caller, the operation and the resource; a server that gives no text leaves that to the client.
Pure: it only makes texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Final, TypeVar

from kip932.errors import KafkaError, TopicAuthorizationFailedError

E = TypeVar("E", bound=KafkaError)

#: The shortest wait before a refused request is repeated, in ms, whatever `retry.backoff.ms` is.
REFUSED_MS: Final = 100
_COMMANDS: Final = "sharegroups acls"
_TOPICS_MAX: Final = 5


def may_not_read(error: E, group_id: str, topics: Sequence[str]) -> E:
    """Return the error of a consumer of these topics, with the command that gives it its rights.

    A single topic is named, even if the server does not name it.
    """
    about = _about(error, topics[0]) if len(topics) == 1 and isinstance(error, TopicAuthorizationFailedError) else ""
    named = " ".join(f"--topic {quote(topic)}" for topic in topics[:_TOPICS_MAX])
    return _explained(error, about, f"--consumer {named} --group {quote(group_id)}")


def may_not_write(error: E, topic: str) -> E:
    """Return the error of a producer, with the topic's name and the command that gives it its right."""
    return _explained(error, _about(error, topic), f"--producer --topic {quote(topic)}")


def _about(error: KafkaError, topic: str) -> str:
    return "" if repr(topic) in error.message else f"topic {topic!r}: "


def _explained(error: E, about: str, role: str) -> E:
    if role in error.message:
        return type(error)(about + error.message)
    if f"{_COMMANDS} add" in error.message:  # it allows the one operation; others may be missing, too
        return type(error)(f"{about}{error.message} (or, for all that this client needs: {role})")
    if _COMMANDS in error.message or "super.users" in error.message:  # to allow more would not help
        return type(error)(about + error.message)
    said = error.message.rstrip(".")
    command = f"{_COMMANDS} add --allow-principal User:NAME {role} --command-config FILE"
    return type(error)(f"{about}{said}. An administrator can allow it: {command}")
