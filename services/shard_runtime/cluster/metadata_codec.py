"""Translates the values of `metadata` to and from the bytes of `MetadataRecord` in the metadata log (CM-20)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from kip932.acls import Acl
from kip932.quotas import QuotaEntity
from kip932.records.v1 import metadata_log_pb2 as pb
from kip932.scram import ScramCredential
from shard_runtime.cluster.metadata import (
    AclAdded,
    AclRemoved,
    Change,
    ConfigRemoved,
    ConfigSet,
    PartitionsAdded,
    QuotaRemoved,
    QuotaSet,
    ScramCredentialRemoved,
    ScramCredentialSet,
    Snapshot,
    StreamsRemoved,
    TopicCreated,
    TopicDeleted,
)

RECORD_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class MetadataEntry:
    """One entry of the metadata log. `unknown`: how many parts of it, written by a later build, were not understood."""

    change_id: bytes
    changes: tuple[Change, ...] = ()
    snapshot: Snapshot | None = None
    unknown: int = 0


def encode_changes(changes: Iterable[Change], change_id: bytes, wall_ms: int) -> bytes:
    """Return the bytes of an entry with the changes of one version."""
    record = pb.MetadataRecord(record_version=RECORD_VERSION, append_time_ms=wall_ms, change_id=change_id)
    for change in changes:
        record.changes.append(_change(change))
    return record.SerializeToString()


def encode_snapshot(snapshot: Snapshot, change_id: bytes, wall_ms: int) -> bytes:
    """Return the bytes of a snapshot entry."""
    return pb.MetadataRecord(
        record_version=RECORD_VERSION,
        append_time_ms=wall_ms,
        change_id=change_id,
        snapshot=pb.MetadataSnapshot(
            topics=[_topic(topic) for topic in snapshot.topics],
            configs=[pb.ConfigSet(**config._asdict()) for config in snapshot.configs],
            acls=[pb.AclAdded(**acl._asdict()) for acl in snapshot.acls],
            deleted_topics=[pb.TopicDeleted(**deleted._asdict()) for deleted in snapshot.deleted],
            quotas=[_quota(quota) for quota in snapshot.quotas],
            scram_credentials=[_credential(each) for each in snapshot.credentials],
        ),
    ).SerializeToString()


def decode(data: bytes) -> MetadataEntry:
    """Decode an entry. Raises ValueError if the bytes are malformed.

    Unknown changes and unknown parts of a snapshot are skipped and counted; so is a whole record of a later version
    (SC-51).
    """
    try:
        record = pb.MetadataRecord.FromString(data)
    except DecodeError as error:
        raise ValueError(f"no metadata record: {error}") from error
    if record.record_version != RECORD_VERSION:
        return MetadataEntry(record.change_id, unknown=1)
    snapshot = _read_snapshot(record.snapshot) if record.HasField("snapshot") else None
    changes = tuple(change for change in map(_read_change, record.changes) if change is not None)
    unknown = len(record.changes) - len(changes) + len(UnknownFieldSet(record.snapshot))
    return MetadataEntry(record.change_id, changes, snapshot, unknown)


def _topic(topic: TopicCreated) -> pb.TopicCreated:
    return pb.TopicCreated(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        configs=dict(topic.configs),
        created_at_ms=topic.created_at_ms,
        created_under=topic.created_under,
    )


def _quota(quota: QuotaSet) -> pb.QuotaSet:
    return pb.QuotaSet(**quota.entity._asdict(), key=quota.key, value=quota.value)


def _credential(credential: ScramCredential) -> pb.ScramCredentialSet:
    return pb.ScramCredentialSet(
        user=credential.user,
        mechanism=credential.mechanism,
        iterations=credential.iterations,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
    )


_FIELDS: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    TopicCreated: ("topic_created", _topic),
    PartitionsAdded: ("partitions_added", lambda change: pb.PartitionsAdded(**change._asdict())),
    TopicDeleted: ("topic_deleted", lambda change: pb.TopicDeleted(**change._asdict())),
    StreamsRemoved: ("streams_removed", lambda change: pb.StreamsRemoved(**change._asdict())),
    ConfigSet: ("config_set", lambda change: pb.ConfigSet(**change._asdict())),
    ConfigRemoved: ("config_removed", lambda change: pb.ConfigRemoved(**change._asdict())),
    AclAdded: ("acl_added", lambda change: pb.AclAdded(**change.acl._asdict())),
    AclRemoved: ("acl_removed", lambda change: pb.AclRemoved(**change.acl._asdict())),
    QuotaSet: ("quota_set", _quota),
    QuotaRemoved: ("quota_removed", lambda change: pb.QuotaRemoved(**change.entity._asdict(), key=change.key)),
    ScramCredentialSet: ("scram_credential_set", lambda change: _credential(change.credential)),
    ScramCredentialRemoved: (
        "scram_credential_removed",
        lambda change: pb.ScramCredentialRemoved(**change._asdict()),
    ),
}


def _change(change: Change) -> pb.MetadataChange:
    field, message = _FIELDS[type(change)]
    return pb.MetadataChange(**{field: message(change)})


def _read_topic(topic: pb.TopicCreated) -> TopicCreated:
    configs = dict(topic.configs)
    return TopicCreated(topic.name, topic.topic_id, topic.partitions, configs, topic.created_at_ms, topic.created_under)


def _read_acl(acl: pb.AclAdded | pb.AclRemoved) -> Acl:
    return Acl(
        acl.resource_type,
        acl.resource_name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def _read_config(config: pb.ConfigSet) -> ConfigSet:
    return ConfigSet(config.resource_type, config.resource_name, config.key, config.value)


def _read_entity(quota: pb.QuotaSet | pb.QuotaRemoved) -> QuotaEntity:
    return QuotaEntity(
        quota.user if quota.HasField("user") else None, quota.client_id if quota.HasField("client_id") else None
    )


def _read_quota(quota: pb.QuotaSet) -> QuotaSet:
    return QuotaSet(_read_entity(quota), quota.key, quota.value)


def _read_deleted(deleted: pb.TopicDeleted) -> TopicDeleted:
    return TopicDeleted(deleted.topic_id, deleted.name, deleted.deleted_at_ms, deleted.partitions)


def _read_credential(found: pb.ScramCredentialSet) -> ScramCredential:
    return ScramCredential(
        found.user, found.mechanism, found.iterations, found.salt, found.stored_key, found.server_key
    )


_READERS: Final[dict[str, Callable[[Any], Change]]] = {
    "topic_created": _read_topic,
    "partitions_added": lambda added: PartitionsAdded(added.topic_id, added.partitions),
    "topic_deleted": _read_deleted,
    "streams_removed": lambda removed: StreamsRemoved(removed.topic_id),
    "config_set": _read_config,
    "config_removed": lambda removed: ConfigRemoved(removed.resource_type, removed.resource_name, removed.key),
    "acl_added": lambda acl: AclAdded(_read_acl(acl)),
    "acl_removed": lambda acl: AclRemoved(_read_acl(acl)),
    "quota_set": _read_quota,
    "quota_removed": lambda quota: QuotaRemoved(_read_entity(quota), quota.key),
    "scram_credential_set": lambda found: ScramCredentialSet(_read_credential(found)),
    "scram_credential_removed": lambda removed: ScramCredentialRemoved(removed.user, removed.mechanism),
}


def _read_change(change: pb.MetadataChange) -> Change | None:
    field = change.WhichOneof("change")
    if field is None:
        return None
    return _READERS[field](getattr(change, field))


def _read_snapshot(snapshot: pb.MetadataSnapshot) -> Snapshot:
    return Snapshot(
        tuple(_read_topic(topic) for topic in snapshot.topics),
        tuple(_read_config(config) for config in snapshot.configs),
        tuple(_read_acl(acl) for acl in snapshot.acls),
        tuple(_read_deleted(deleted) for deleted in snapshot.deleted_topics),
        tuple(_read_quota(quota) for quota in snapshot.quotas),
        tuple(_read_credential(each) for each in snapshot.scram_credentials),
    )
