"""The metadata of the cluster as one immutable, versioned value: topics, configs, access control entries, quotas,
users' passwords (CM-20). Pure.

An image is built from its predecessor and the changes of the next version, or from a snapshot entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from kip932.acls import Acl
from kip932.ids import RESOURCE_TOPIC, parse_topic_id, topic_id_text
from kip932.quotas import QuotaEntity, QuotasOf
from kip932.scram import Credentials, ScramCredential
from shard_runtime.record_log.protocol import ShardId, ShardKind

DELETED_TOPICS_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic was created; in an image `partitions` is the current count. `created_under`: the store's history at
    creation."""

    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    created_at_ms: int = 0
    created_under: str = ""


class PartitionsAdded(NamedTuple):
    """A topic has `partitions` partitions now."""

    topic_id: bytes
    partitions: int


class TopicDeleted(NamedTuple):
    """A topic was deleted and its streams may be removed. `partitions`: how many may still have some."""

    topic_id: bytes
    name: str
    deleted_at_ms: int = 0
    partitions: int = 0


class StreamsRemoved(NamedTuple):
    """All streams of a deleted topic are removed from the store."""

    topic_id: bytes


class ConfigSet(NamedTuple):
    """A config of a resource was set."""

    resource_type: int
    resource_name: str
    key: str
    value: str


class ConfigRemoved(NamedTuple):
    """A config of a resource was removed: its default is in force again."""

    resource_type: int
    resource_name: str
    key: str


class AclAdded(NamedTuple):
    """An access control entry was added."""

    acl: Acl


class AclRemoved(NamedTuple):
    """An access control entry was removed."""

    acl: Acl


class QuotaSet(NamedTuple):
    """A quota of clients was set."""

    entity: QuotaEntity
    key: str
    value: float


class QuotaRemoved(NamedTuple):
    """A quota of clients was removed."""

    entity: QuotaEntity
    key: str


class ScramCredentialSet(NamedTuple):
    """A user's password for one mechanism was set."""

    credential: ScramCredential

    @property
    def key(self) -> tuple[str, int]:
        """The user and the mechanism."""
        return self.credential.user, self.credential.mechanism


class ScramCredentialRemoved(NamedTuple):
    """A user's password for one mechanism was removed."""

    user: str
    mechanism: int

    @property
    def key(self) -> tuple[str, int]:
        """The user and the mechanism."""
        return self.user, self.mechanism


Change = (
    TopicCreated
    | PartitionsAdded
    | TopicDeleted
    | StreamsRemoved
    | ConfigSet
    | ConfigRemoved
    | AclAdded
    | AclRemoved
    | QuotaSet
    | QuotaRemoved
    | ScramCredentialSet
    | ScramCredentialRemoved
)
ConfigsOf = Mapping[tuple[int, str], Mapping[str, str]]

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All metadata, in the form that one log entry carries."""

    topics: tuple[TopicCreated, ...]
    configs: tuple[ConfigSet, ...]
    acls: tuple[Acl, ...]
    deleted: tuple[TopicDeleted, ...]
    quotas: tuple[QuotaSet, ...] = ()
    credentials: tuple[ScramCredential, ...] = ()


@dataclass(frozen=True)
class MetadataImage:
    """The metadata as of `version`. `deleted`: the latest deletions by topic id, oldest first.

    `remains`: topic id → number of partitions, for deleted topics whose streams may still exist (CM-21).
    """

    version: int = 0
    topics: Mapping[str, TopicCreated] = field(default_factory=dict)
    by_id: Mapping[bytes, TopicCreated] = field(default_factory=dict)
    configs: ConfigsOf = field(default_factory=dict)
    acls: frozenset[Acl] = frozenset()
    deleted: Mapping[bytes, TopicDeleted] = field(default_factory=dict)
    shards: frozenset[ShardId] = frozenset()
    remains: Mapping[bytes, int] = field(default_factory=dict)
    quotas: QuotasOf = field(default_factory=dict)
    #: The same object as in the image before, unless one was set or removed.
    credentials: Credentials = field(default_factory=dict)

    def config(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        """Return the configs set on a resource; `EffectiveConfigs` reads overrides through it."""
        return self.configs.get((resource_type, resource_name), _NOTHING)

    def name_of(self, topic_id: bytes) -> str:
        """Return the name that a topic has, or had before it was deleted; "" if that is not known."""
        found = self.by_id.get(topic_id) or self.deleted.get(topic_id)
        return "" if found is None else found.name

    def is_deleted(self, shard: ShardId) -> bool:
        """Return whether the shard's topic is known to be deleted. A topic that is merely absent is not (CM-20)."""
        if shard.kind is not ShardKind.TOPIC or not self.deleted:
            return False
        return parse_topic_id(shard.name.partition(":")[0]) in self.deleted

    @property
    def partitions(self) -> int:
        """How many partitions the store may hold: all topics' partitions, and those in `remains`."""
        return sum(topic.partitions for topic in self.topics.values()) + sum(self.remains.values())

    def apply(self, version: int, changes: Iterable[Change]) -> MetadataImage:
        """Return the image after `changes`."""
        builder = _Builder(self)
        for change in changes:
            builder.apply(change)
        return builder.build(version)

    def snapshot(self) -> Snapshot:
        """Return all metadata, for one log entry."""
        return Snapshot(
            tuple(self.topics.values()),
            tuple(
                ConfigSet(kind, name, key, value)
                for (kind, name), values in self.configs.items()
                for key, value in values.items()
            ),
            tuple(sorted(self.acls)),
            tuple(self.deleted.values()),
            tuple(QuotaSet(entity, *one) for entity, values in self.quotas.items() for one in values.items()),
            tuple(self.credentials.values()),
        )


def image_of(version: int, snapshot: Snapshot) -> MetadataImage:
    """Return the image that a snapshot entry describes."""
    builder = _Builder(MetadataImage())
    for topic in snapshot.topics:
        builder.apply(replace(topic, configs={}))
    for config in snapshot.configs:
        builder.apply(config)
    for acl in snapshot.acls:
        builder.apply(AclAdded(acl))
    for deleted in snapshot.deleted:
        builder.apply(deleted)
    for quota in snapshot.quotas:
        builder.apply(quota)
    for credential in snapshot.credentials:
        builder.apply(ScramCredentialSet(credential))
    return builder.build(version)


class _Builder:
    def __init__(self, image: MetadataImage) -> None:
        self.topics = dict(image.topics)
        self.by_id = dict(image.by_id)
        self.configs = {resource: dict(values) for resource, values in image.configs.items()}
        self._acls = image.acls
        self._new_acls: set[Acl] | None = None
        self._credentials = image.credentials
        self._new_credentials: dict[tuple[str, int], ScramCredential] | None = None
        self.deleted = dict(image.deleted)
        self._remains = image.remains
        self._quotas = image.quotas
        self._new_quotas: dict[QuotaEntity, dict[str, float]] | None = None
        self._shards = image.shards
        self._topics_changed = False
        self._deleted_changed = False

    def apply(self, change: Change) -> None:
        match change:
            case TopicCreated():
                self._put(replace(change, configs={}))
                for key, value in change.configs.items():
                    self.configs.setdefault((RESOURCE_TOPIC, change.name), {})[key] = value
            case PartitionsAdded():
                topic = self.by_id.get(change.topic_id)
                if topic is not None and change.partitions > topic.partitions:
                    self._put(replace(topic, partitions=change.partitions))
            case TopicDeleted():
                self._delete(change)
            case StreamsRemoved():
                self._removed(change.topic_id)
            case ConfigSet():
                values = self.configs.setdefault((change.resource_type, change.resource_name), {})
                values[change.key] = change.value
            case ConfigRemoved():
                self._remove_config(change)
            case AclAdded():
                self._changed_acls().add(change.acl)
            case AclRemoved():
                self._changed_acls().discard(change.acl)
            case QuotaSet() | QuotaRemoved():
                self._change_quota(change)
            case ScramCredentialSet() | ScramCredentialRemoved():
                self._change_password(change)

    def build(self, version: int) -> MetadataImage:
        if self._deleted_changed:
            self._forget_deletions()
            self._remains = {topic_id: gone.partitions for topic_id, gone in self.deleted.items() if gone.partitions}
        shards = self._shards
        if self._topics_changed:
            shards = frozenset(
                ShardId(ShardKind.TOPIC, f"{text}:{partition}")
                for topic in self.topics.values()
                for text in (topic_id_text(topic.topic_id),)
                for partition in range(topic.partitions)
            )
        acls = self._acls if self._new_acls is None else frozenset(self._new_acls)
        return MetadataImage(
            version,
            self.topics,
            self.by_id,
            self.configs,
            acls,
            self.deleted,
            shards,
            self._remains,
            self._quotas if self._new_quotas is None else self._new_quotas,
            self._credentials if self._new_credentials is None else self._new_credentials,
        )

    def _changed_acls(self) -> set[Acl]:
        if self._new_acls is None:
            self._new_acls = set(self._acls)
        return self._new_acls

    def _change_password(self, change: ScramCredentialSet | ScramCredentialRemoved) -> None:
        new = change.credential if isinstance(change, ScramCredentialSet) else None
        key = change.key
        present = self._credentials if self._new_credentials is None else self._new_credentials
        if present.get(key) == new:
            return
        if self._new_credentials is None:
            self._new_credentials = dict(self._credentials)
        if new is None:
            del self._new_credentials[key]
        else:
            self._new_credentials[key] = new

    def _forget_deletions(self) -> None:
        """Drop the oldest deletions beyond the limit, but none whose streams may exist: CreateTopics bounds those."""
        surplus = len(self.deleted) - DELETED_TOPICS_KEPT
        if surplus > 0:
            done = [topic_id for topic_id, gone in self.deleted.items() if not gone.partitions]
            for topic_id in done[:surplus]:
                del self.deleted[topic_id]

    def _put(self, topic: TopicCreated) -> None:
        self.topics[topic.name] = self.by_id[topic.topic_id] = topic
        self._topics_changed = True

    def _delete(self, change: TopicDeleted) -> None:
        topic = self.by_id.pop(change.topic_id, None)
        partitions = change.partitions if topic is None else topic.partitions
        self.deleted[change.topic_id] = change._replace(partitions=partitions)
        self._deleted_changed = True
        if topic is not None:
            del self.topics[topic.name]
            self.configs.pop((RESOURCE_TOPIC, topic.name), None)
            self._topics_changed = True

    def _removed(self, topic_id: bytes) -> None:
        deleted = self.deleted.get(topic_id)
        if deleted is not None:
            self.deleted[topic_id] = deleted._replace(partitions=0)
            self._deleted_changed = True

    def _remove_config(self, change: ConfigRemoved) -> None:
        resource = (change.resource_type, change.resource_name)
        values = self.configs.get(resource)
        if values is not None:
            values.pop(change.key, None)
            if not values:
                del self.configs[resource]

    def _change_quota(self, change: QuotaSet | QuotaRemoved) -> None:
        if self._new_quotas is None:
            self._new_quotas = {entity: dict(values) for entity, values in self._quotas.items()}
        if isinstance(change, QuotaSet):
            self._new_quotas.setdefault(change.entity, {})[change.key] = change.value
            return
        values = self._new_quotas.get(change.entity, {})
        values.pop(change.key, None)
        if not values:
            self._new_quotas.pop(change.entity, None)
