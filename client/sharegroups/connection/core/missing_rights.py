"""The text of an error about a missing right: what the server said, and what to do about it (CL-143, CL-164).

A server's text names the caller, the operation and the resource; a server that gives no text leaves that to the client.
Pure: it only makes texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from kip932.errors import KafkaError, TopicAuthorizationFailedError
from kip932.remedies import ANY_TOPIC, allowing, argument, fitted, proposes

E = TypeVar("E", bound=KafkaError)

#: The shortest wait before a refused request is repeated, in ms, whatever `retry.backoff.ms` is.
REFUSED_MS: Final = 100
_TOPICS_MAX: Final = 5
#: In place of the caller's name, which a server did not say.
_UNKNOWN: Final = "User:NAME"


def may_not_read(error: E, group_id: str, topics: Sequence[str]) -> E:
    """Return the error of a consumer of these topics, with the command that gives it its rights.

    A single topic is named, even if the server does not name it.
    """
    return _explained(error, "--consumer", topics, f"--group {argument(group_id)}")


def may_not_work(error: E, group_id: str, topics: Sequence[str]) -> E:
    """Return the error of a worker on these topics, with the command that gives it its rights. It may be one that
    `may_not_read` has made."""
    return _explained(error, "--worker", topics, f"--group {argument(group_id)}")


def may_not_write(error: E, topics: Sequence[str], transactional_id: str | None) -> E:
    """Return the error of a producer for these topics, with the command that gives it its rights.

    A single topic is named, even if the server does not name it; without any, the command has a place for one.
    """
    return _explained(
        error,
        "--producer",
        topics,
        "" if transactional_id is None else f"--transactional-id {argument(transactional_id)}",
    )


def _explained(error: E, shorthand: str, topics: Sequence[str], more: str) -> E:
    topic = topics[0] if len(topics) == 1 else None
    is_about = topic is not None and isinstance(error, TopicAuthorizationFailedError)
    about = f"topic {topic!r}: " if is_about and repr(topic) not in error.message else ""
    named = [f"--topic {argument(each)}" for each in topics[:_TOPICS_MAX]] or [ANY_TOPIC]
    role = " ".join(each for each in (shorthand, *named, more) if each)
    if proposes(error.message):
        return type(error)(about + fitted(error.message, role, topic))
    return type(error)(f"{about}{error.message.rstrip('.')}. {allowing(_UNKNOWN, role)}")
