"""Lists the streams of a cluster, from its own constants and its metadata log (PM-5, CM-20)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kip932.ids import RESOURCE_GROUP, topic_id_text
from kip932.records.v1 import metadata_log_pb2 as pb
from share_metrics.reader.offsets import entry_id
from share_metrics.reader.schemas import Kind
from share_metrics.reader.store import Store, StoreReplyError, StoreUnreachableError

_META_LOG: Final = "{meta}:log"
_CLUSTER_ID: Final = "{meta}:cluster"
_CONFIG_KEYS: Final = {Kind.SHARE_STATE: "sgs:config", Kind.GROUP: "gc:config"}
_TAGS: Final = {Kind.SHARE_STATE: "sgs", Kind.GROUP: "gc"}
_PAGE: Final = 500


class NoClusterError(Exception):
    """No cluster was ever created in this store."""


class OtherClusterError(NoClusterError):
    """The store holds another cluster than the one that was read so far: it was replaced, or emptied."""


class Topic(NamedTuple):
    """A topic as of the newest metadata."""

    topic_id: str
    name: str
    partitions: int


class TopicLife(NamedTuple):
    """A topic from its creation to its deletion.

    `created_ms`: ms since 1970; 0 if unknown. `deleted_ms`: ms since 1970; None if the topic exists.
    """

    topic_id: str
    name: str
    created_ms: int = 0
    deleted_ms: int | None = None


def streams_of(store: Store, kind: Kind, shards: int | None = None) -> list[str]:
    """Keys of all streams of a kind; some may not exist yet. Raises NoClusterError, or what `Store.call` raises.

    `shards` overrides the number of shards with which the cluster was created.
    """
    store = store.primary  # a replica's list may be older, and leave out streams that were read already
    if kind is Kind.LOG_META:
        return [f"{{tp:{topic.topic_id}:{index}}}:log" for topic in topics(store) for index in range(topic.partitions)]
    count = shards if shards is not None else _shards(store, _CONFIG_KEYS[kind])
    return [f"{{{_TAGS[kind]}:{number}}}:log" for number in range(count)]


def _shards(store: Store, key: str) -> int:
    found = store.call(key, "GET", key)
    if found is None:
        raise NoClusterError(f"the store has no key {key}, so no cluster was made in it; is it the right store?")
    return int(found)


def cluster_id(store: Store) -> str:
    """The cluster's id; "" in a store that has none. Raises what `Store.call` raises; StoreUnreachableError, too, while
    a backup is being restored into it: then the key is a hash (CM-143)."""
    try:
        found = store.call(_CLUSTER_ID, "GET", _CLUSTER_ID)
    except StoreReplyError as error:
        if "WRONGTYPE" not in str(error):
            raise
        raise StoreUnreachableError(
            "a backup is being restored into the store; it can be read when that has ended. If it was interrupted, run "
            "the same `sharegroups restore` again"
        ) from None  # Spark passes on all texts of a chain, of which the first one would decide
    return found.decode() if found else ""


def check_cluster_id(store: Store, expected: str) -> None:
    """Raise OtherClusterError unless the store holds this cluster. Raises what `Store.call` raises."""
    found = cluster_id(store.primary)
    if found != expected:
        holds = f"is of cluster {found}" if found else "holds no cluster"
        raise OtherClusterError(
            f"this store {holds}, but positions and rows so far are of cluster {expected}; give the store of that "
            "cluster, or another directory with --data"
        )


def topics(store: Store) -> list[Topic]:
    """The topics that exist, sorted by name, from a replay of the metadata log."""
    found: dict[bytes, Topic] = {}
    for record in _records(store):
        _apply(found, record)
    return sorted(found.values(), key=lambda topic: (topic.name, topic.topic_id))


def topic_lives(store: Store) -> list[TopicLife]:
    """Every topic in the metadata log, including deleted ones, the newest first."""
    found: dict[bytes, TopicLife] = {}
    for record in _records(store):
        changed = [(change.topic_created, change.topic_deleted) for change in record.changes]
        created = [*record.snapshot.topics, *(made for made, _ in changed if made.topic_id)]
        for made in created:
            found[made.topic_id] = TopicLife(topic_id_text(made.topic_id), made.name, made.created_at_ms)
        for gone in (*record.snapshot.deleted_topics, *(gone for _, gone in changed if gone.topic_id)):
            known = found.get(gone.topic_id) or TopicLife(topic_id_text(gone.topic_id), gone.name)
            found[gone.topic_id] = known._replace(deleted_ms=gone.deleted_at_ms)
    return [*reversed(found.values())]


def group_configs(store: Store) -> dict[str, dict[str, str]]:
    """The configs of the groups that have some of their own, from a replay of the metadata log."""
    found: dict[str, dict[str, str]] = {}
    for record in _records(store):
        if record.HasField("snapshot"):
            found.clear()
        changed = [(change.config_set, change.config_removed) for change in record.changes]
        given = [*record.snapshot.configs, *(given for given, _ in changed if given.key)]
        for one in given:
            if one.resource_type == RESOURCE_GROUP:
                found.setdefault(one.resource_name, {})[one.key] = one.value
        for gone in (gone for _, gone in changed if gone.key and gone.resource_type == RESOURCE_GROUP):
            found.get(gone.resource_name, {}).pop(gone.key, None)
    return {group: configs for group, configs in found.items() if group and configs}


def _records(store: Store) -> Iterator[pb.MetadataRecord]:
    after = "-"
    while page := store.call(_META_LOG, "XRANGE", _META_LOG, after, "+", "COUNT", _PAGE):
        for _, fields in page:
            named = dict(zip(fields[::2], fields[1::2], strict=True))
            yield pb.MetadataRecord.FromString(named.get(b"r", b""))
        after = f"({entry_id(page[-1][0])}"


def _apply(found: dict[bytes, Topic], record: pb.MetadataRecord) -> None:
    if record.HasField("snapshot"):
        found.clear()
        for topic in record.snapshot.topics:
            found[topic.topic_id] = _topic(topic)
    for change in record.changes:
        which = change.WhichOneof("change")
        if which == "topic_created":
            found[change.topic_created.topic_id] = _topic(change.topic_created)
        elif which == "partitions_added" and change.partitions_added.topic_id in found:
            known = found[change.partitions_added.topic_id]
            found[change.partitions_added.topic_id] = known._replace(partitions=change.partitions_added.partitions)
        elif which == "topic_deleted":
            found.pop(change.topic_deleted.topic_id, None)


def _topic(value: Any) -> Topic:
    return Topic(topic_id_text(value.topic_id), value.name, value.partitions)
