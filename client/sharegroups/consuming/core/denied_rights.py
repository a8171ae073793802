"""The permissions that a consumer lacks: which refusals are reported to the application, and when a topic is requested
again.

Rule CL-143. Several sources may refuse for the same reason: each leader, the coordinator and the metadata. Pure: times
are passed in, in ms. Holds at most one entry for each source, and one for each topic of a leader's session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final, NamedTuple

from kip932.errors import KafkaError, TopicAuthorizationFailedError
from kip932.ids import TopicIdPartition
from sharegroups.connection.core.backoff import Backoff
from sharegroups.connection.core.missing_rights import REFUSED_MS

#: What is refused: the kind of the resource and its name, such as ("topic", "orders").
Resource = tuple[str, str]
#: What is refused when a node does not accept this client's token, password or certificate (CL-158).
CREDENTIALS: Final[Resource] = ("credentials", "")


class Change(NamedTuple):
    """What an answer has changed. `errors`: those of resources that no source refused before. `allowed`: the resources
    that no source refuses any longer."""

    errors: list[KafkaError]
    allowed: list[Resource]


class DeniedRights:
    """The resources that are currently refused, by source."""

    def __init__(self) -> None:
        self._refused: dict[Hashable, frozenset[Resource]] = {}

    def note(self, source: Hashable, refused: Mapping[Resource, KafkaError]) -> Change:
        """Note all that `source` refuses now, and return what to report. A resource is reported again only after all
        sources have allowed it."""
        before = self._all()
        if refused:
            self._refused[source] = frozenset(refused)
        else:
            self._refused.pop(source, None)
        errors = [error for resource, error in refused.items() if resource not in before]
        return Change(errors, sorted(before - self._all()))

    def forget(self, source: Hashable) -> None:
        """Forget a source that is no longer asked; this does not allow any resource."""
        self._refused.pop(source, None)

    def _all(self) -> frozenset[Resource]:
        return frozenset[Resource]().union(*self._refused.values())


class _Pause:
    __slots__ = ("backoff", "error", "until_ms")

    def __init__(self, backoff: Backoff, error: TopicAuthorizationFailedError) -> None:
        self.backoff = backoff
        self.error = error
        self.until_ms = 0


class DeniedTopics:
    """The topics that one leader refuses, with the error and the end of the back-off of each. `backoff` makes one."""

    def __init__(self, backoff: Callable[[], Backoff]) -> None:
        self._make_backoff = backoff
        self._pauses: dict[bytes, _Pause] = {}

    def __bool__(self) -> bool:
        return bool(self._pauses)

    def errors(self) -> dict[bytes, TopicAuthorizationFailedError]:
        """Return the last error of each refused topic, by topic id."""
        return {topic_id: pause.error for topic_id, pause in self._pauses.items()}

    def answered(
        self,
        refused: Mapping[bytes, TopicAuthorizationFailedError],
        asked: Collection[TopicIdPartition],
        wanted: Collection[TopicIdPartition],
        now_ms: int,
    ) -> None:
        """Process a response to a ShareFetch. `refused`: the errors by topic id. `asked`: the partitions of that
        request's session; their topics are allowed if they are not refused. `wanted`: the partitions that the session
        should have; other topics are forgotten."""
        gone = self._pauses.keys() - {partition.topic_id for partition in wanted}
        for topic_id in gone.union(partition.topic_id for partition in asked) - refused.keys():
            self._pauses.pop(topic_id, None)
        for topic_id, error in refused.items():
            if topic_id not in self._pauses:
                self._pauses[topic_id] = _Pause(self._make_backoff(), error)
            pause = self._pauses[topic_id]
            pause.error = error
            pause.until_ms = now_ms + max(REFUSED_MS, pause.backoff.next_ms())

    def askable(self, wanted: Mapping[TopicIdPartition, str], now_ms: int) -> Mapping[TopicIdPartition, str]:
        """Return the partitions of `wanted` that a request may name now."""
        waiting = {topic_id for topic_id, pause in self._pauses.items() if now_ms < pause.until_ms}
        if not waiting:
            return wanted
        return {partition: name for partition, name in wanted.items() if partition.topic_id not in waiting}

    def not_before_ms(self, wanted: Collection[TopicIdPartition]) -> int:
        """Return when the first partition of `wanted` may be named; 0 if one of them is not refused."""
        pauses = [self._pauses.get(topic_id) for topic_id in {partition.topic_id for partition in wanted}]
        return min((0 if pause is None else pause.until_ms for pause in pauses), default=0)
