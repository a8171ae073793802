"""Finds out why no records are received or sent; `consume` and `produce` print it as a warning when the cluster or the
topic is missing."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from kip932.errors import (
    CoordinatorError,
    InvalidTopicError,
    NetworkError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from sharegroups.admin import Admin
from sharegroups.admin_values import TopicDescription
from sharegroups.cli import clients
from sharegroups.cli.output import TLS_SETTINGS, print_stderr, servers_name
from sharegroups.cli.similar_topics import similar_topics
from sharegroups.config import ADMIN
from sharegroups.connection.core.stall_diagnosis import (
    LEADERLESS,
    STATELESS,
    UNCOORDINATED,
    UNKNOWN,
    UNREACHABLE,
    Trouble,
)

#: How long `find_trouble` may take, in ms.
_ASK_MS: Final = 2000


def find_trouble(settings: Mapping[str, Any], topic: str) -> Trouble | None:
    """Check the topic, the group that `group.id` names, and the group's state for the topic, for at most two seconds
    each. Returns None when records may flow. Raises KafkaError, also for an invalid name."""
    known = {setting.name for setting in ADMIN}
    own = {name: value for name, value in settings.items() if name in known} | {"default.api.timeout.ms": _ASK_MS}
    where = settings["bootstrap.servers"]
    try:
        with clients.open_client(Admin, own) as admin:
            described = admin.list_topics([topic])[topic]
            found = _about(admin, described, where)
            if (group := settings.get("group.id")) and found is None:
                found = _about_group(admin, group, where) or _about_state(admin, group, topic, where)
            return found
    except (NetworkError, RequestTimedOutError) as error:
        return Trouble(UNREACHABLE, where, detail=str(error))


def _about_group(admin: Admin, group: str, where: str) -> Trouble | None:
    try:
        (outcome,) = admin.describe_share_groups([group]).values()
    except (NetworkError, RequestTimedOutError) as error:
        outcome = error
    silent = isinstance(outcome, CoordinatorError | NetworkError | RequestTimedOutError)
    return Trouble(UNCOORDINATED, where, detail=str(outcome), group=group) if silent else None


def _about_state(admin: Admin, group: str, topic: str, where: str) -> Trouble | None:
    """Return the trouble with the first partition whose state for the group is unavailable, else None."""
    try:
        errors = admin.list_share_group_partitions(group)
    except RequestTimedOutError as error:
        return Trouble(STATELESS, where, (topic,), f"topic {topic!r}: {error}", group)
    for (name, number), found in sorted(errors.items()):
        if name == topic and found is not None:
            return Trouble(STATELESS, where, (topic,), f"{topic}-{number}: {found.name}: {found.message}", group)
    return None


def _about(admin: Admin, topic: TopicDescription, where: str) -> Trouble | None:
    named = (topic.name,)
    if isinstance(topic.error, UnknownTopicOrPartitionError):
        return Trouble(UNKNOWN, where, named, similar_topics(admin, named)[topic.name])
    if isinstance(topic.error, InvalidTopicError):  # waiting does not help
        raise topic.error
    if topic.error is not None:
        return Trouble(topic.error.name, where, named, str(topic.error))
    without = [str(part.partition) for part in topic.partitions if part.leader < 0]
    return Trouble(LEADERLESS, where, named, ", ".join(without)) if without else None


def text_of(trouble: Trouble, topic: str = "--topic") -> str:
    """Return the trouble as text that refers to the command line; `topic`: the option or argument for the topic."""
    return trouble.text(servers_name(), topic, TLS_SETTINGS)


def warn(text: str) -> None:
    """Print one warning on standard error."""
    print_stderr(f"Warning: {text}")


class Warnings(logging.Handler):
    """A context manager that prints the client library's warnings on standard error while a command runs.

    `topic`: the option or argument that names the topic.
    """

    def __init__(self, topic: str = "--topic") -> None:
        super().__init__(logging.WARNING)
        self._topic = topic
        self._log = logging.getLogger("sharegroups")
        self._printed: Trouble | None = None
        self._is_last = False

    def __enter__(self) -> Self:
        self._log.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Print one log record; logging holds this handler's lock."""
        trouble = getattr(record, "trouble", None)
        if not isinstance(trouble, Trouble):
            warn(record.getMessage())
        elif trouble.lasted_s or not (self._is_last and self._same(trouble)):
            self._printed = trouble
            warn(text_of(trouble, self._topic))

    def last(self, trouble: Trouble) -> None:
        """Print the trouble that the command found, unless it was the last one printed.

        The library's first warning about this trouble is suppressed, until a different one has been printed.
        """
        self.acquire()
        try:
            if not self._same(trouble):
                warn(text_of(trouble, self._topic))
            self._printed, self._is_last = trouble, True
        finally:
            self.release()

    def _same(self, trouble: Trouble) -> bool:
        return self._printed is not None and self._printed.cause == trouble.cause
