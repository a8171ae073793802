"""Why nothing happens: what `consume` and `produce` tell a person whose cluster or topic is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import click

from kip932.errors import NetworkError, RequestTimedOutError, UnknownTopicOrPartitionError
from sharegroups.admin import Admin
from sharegroups.admin_values import TopicDescription
from sharegroups.cli import clients
from sharegroups.config import ADMIN

#: Silence after which the cluster is asked; each further silence is twice as long, up to the last number.
LOOK_AFTER_S: Final = 2.0
_LOOK_AFTER_MAX_S: Final = 30.0
#: How long the question may take, so that a person is told within 5 s (a poll's second included).
_ASK_MS: Final = 2000


class Finding(NamedTuple):
    """What keeps records from going or coming. `kind` stays the same while `text` may change its details."""

    kind: str
    text: str


def find_trouble(settings: Mapping[str, Any], topic: str) -> Finding | None:
    """Ask the cluster about the topic, for at most two seconds; None when records may flow. Raises KafkaError."""
    known = {setting.name for setting in ADMIN}
    own = {name: value for name, value in settings.items() if name in known} | {"default.api.timeout.ms": _ASK_MS}
    where = settings["bootstrap.servers"]
    try:
        with clients.open_client(Admin, own) as admin:
            described = admin.list_topics([topic])[topic]
    except (NetworkError, RequestTimedOutError) as error:
        return Finding(
            "unreachable",
            f"no cluster answers at {where} ({error}). Start one with `sharegroups up`, or correct --bootstrap-server.",
        )
    return _about(described, where)


def _about(topic: TopicDescription, where: str) -> Finding | None:
    if isinstance(topic.error, UnknownTopicOrPartitionError):
        return Finding(
            "unknown",
            f"topic {topic.name!r} does not exist in the cluster at {where}. "
            f"Create it with `sharegroups topics create {topic.name}`, or correct --topic.",
        )
    if topic.error is not None:
        return Finding(topic.error.name, f"topic {topic.name!r} at {where}: {topic.error.name}: {topic.error}")
    without = [str(part.partition) for part in topic.partitions if part.leader < 0]
    if without:
        return Finding(
            "leaderless",
            f"topic {topic.name!r} at {where} has no live leader for partition {', '.join(without)}. "
            "Is a partition leader running? `sharegroups topics describe` shows who leads.",
        )
    return None


def warn(text: str) -> None:
    """One line on standard error."""
    click.echo(f"Warning: {text}", err=True)


class Lookout:
    """When to ask, and what to tell: after a while of silence, each kind of finding once until it is over."""

    def __init__(self, find: Callable[[], Finding | None], tell: Callable[[str], None], now_s: float) -> None:
        self._find = find
        self._tell = tell
        self._silence_s = LOOK_AFTER_S
        self._since_s = now_s
        self._told = ""

    def heard(self, now_s: float) -> None:
        """Records came."""
        self._silence_s, self._since_s, self._told = LOOK_AFTER_S, now_s, ""

    def silent(self, now_s: float) -> None:
        """No record came. May raise what `find` raises."""
        if now_s - self._since_s >= self._silence_s:
            self._silence_s, self._since_s = min(self._silence_s * 2, _LOOK_AFTER_MAX_S), now_s
            self._look()

    def gave_up(self) -> bool:
        """The waiting is over: whether something kept records from coming, which has been told by now."""
        if not self._told:
            self._look()
        return bool(self._told)

    def _look(self) -> None:
        found = self._find()
        if found is not None and found.kind != self._told:
            self._tell(found.text)
        self._told = "" if found is None else found.kind
