"""The metadata image and its bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kip932.acls import Acl
from kip932.ids import RESOURCE_GROUP, RESOURCE_TOPIC, topic_id_text
from kip932.records.v1 import metadata_log_pb2 as pb
from kip932.scram import ScramCredential
from shard_runtime.cluster import metadata
from shard_runtime.cluster.metadata import (
    AclAdded,
    AclRemoved,
    Change,
    ConfigRemoved,
    ConfigSet,
    MetadataImage,
    PartitionsAdded,
    ScramCredentialRemoved,
    ScramCredentialSet,
    StreamsRemoved,
    TopicCreated,
    TopicDeleted,
    image_of,
)
from shard_runtime.cluster.metadata_codec import decode, encode_changes, encode_snapshot
from shard_runtime.record_log.protocol import ShardId, ShardKind

T, U = bytes([1] * 16), bytes([2] * 16)
ACL = Acl(2, "t", 3, "User:a", "*", 3, 3)
ALICE = ScramCredential("alice", 1, 4_096, b"salt" * 4, b"stored", b"server")
CHANGES: tuple[Change, ...] = (
    TopicCreated("t", T, 2, {"retention.ms": "5"}, 99),
    TopicCreated("u", U, 1),
    PartitionsAdded(U, 3),
    ConfigSet(RESOURCE_GROUP, "g", "share.auto.offset.reset", "earliest"),
    ConfigSet(RESOURCE_GROUP, "h", "share.auto.offset.reset", "latest"),
    ConfigRemoved(RESOURCE_GROUP, "h", "share.auto.offset.reset"),
    AclAdded(ACL),
    ScramCredentialSet(ALICE),
)


def shard(topic_id: bytes, partition: int) -> ShardId:
    return ShardId(ShardKind.TOPIC, f"{topic_id_text(topic_id)}:{partition}")


@pytest.mark.rule("CM-20", "GC-146")
def test_changes_make_the_image_and_leave_the_old_one_alone() -> None:
    before = MetadataImage()
    image = before.apply(1, CHANGES)
    assert before == MetadataImage()
    assert image.topics["u"].partitions == 3
    assert image.by_id[T].name == "t"
    assert image.config(RESOURCE_TOPIC, "t") == {"retention.ms": "5"}
    assert image.config(RESOURCE_GROUP, "g") == {"share.auto.offset.reset": "earliest"}
    assert (RESOURCE_GROUP, "h") not in image.configs
    assert image.acls == {ACL}
    assert image.shards == {shard(T, 0), shard(T, 1), *(shard(U, n) for n in range(3))}
    assert image.apply(2, [AclRemoved(ACL)]).acls == frozenset()


@pytest.mark.rule("CM-20", "CM-21")
def test_only_a_deletion_deletes_and_a_namesake_shares_nothing() -> None:
    image = MetadataImage().apply(1, CHANGES).apply(2, [TopicDeleted(T, "t", 7)])
    assert "t" not in image.topics
    assert image.config(RESOURCE_TOPIC, "t") == {}
    assert image.is_deleted(shard(T, 0))
    assert not image.is_deleted(shard(bytes(16), 0))
    assert not image.is_deleted(ShardId(ShardKind.GROUP, "1"))
    again = image.apply(3, [TopicCreated("t", bytes([3] * 16), 1)])
    assert again.is_deleted(shard(T, 0))
    assert shard(T, 0) not in again.shards


@pytest.mark.rule("CM-20", "CM-189")
def test_the_passwords_of_an_image_are_the_same_object_until_one_of_them_changes() -> None:
    image = MetadataImage().apply(1, CHANGES)
    assert image.credentials == {("alice", 1): ALICE}
    same = image.apply(2, [ScramCredentialSet(ALICE), ScramCredentialRemoved("bob", 1), AclRemoved(ACL)])
    assert same.credentials is image.credentials
    other = replace(ALICE, iterations=5_000)
    both = image.apply(2, [ScramCredentialSet(other), ScramCredentialSet(ALICE), ScramCredentialSet(other)])
    assert both.credentials == {("alice", 1): other}
    assert image.apply(2, [ScramCredentialRemoved("alice", 1)]).credentials == {}
    assert image.credentials == {("alice", 1): ALICE}


@pytest.mark.rule("CM-189")
def test_no_salt_and_no_key_is_in_the_text_of_a_value() -> None:
    for value in (ALICE, ScramCredentialSet(ALICE), MetadataImage().apply(1, CHANGES)):
        assert "alice" in repr(value)
        assert not any(secret in repr(value) for secret in ("salt", "stored", "server"))


@pytest.mark.rule("CM-20")
def test_a_part_of_a_snapshot_that_is_not_known_is_counted() -> None:
    newer = encode_snapshot(MetadataImage().apply(1, CHANGES).snapshot(), b"c" * 16, 5)
    record = pb.MetadataRecord.FromString(newer)
    record.snapshot.MergeFromString(b"\xa2\x06\x01x")  # a text in field 100
    assert decode(newer).unknown == 0
    entry = decode(record.SerializeToString())
    assert entry.unknown == 1
    assert entry.snapshot is not None


def test_a_partition_count_never_shrinks() -> None:
    image = MetadataImage().apply(1, CHANGES).apply(2, [PartitionsAdded(U, 1)])
    assert image.by_id[U].partitions == 3


@pytest.mark.rule("CM-20")
def test_changes_and_snapshots_survive_their_bytes() -> None:
    changes = (*CHANGES, TopicDeleted(T, "t", 7, 2), TopicDeleted(U, "u", 8, 3), StreamsRemoved(U), AclRemoved(ACL))
    changes += (ScramCredentialRemoved("bob", 2),)
    entry = decode(encode_changes(changes, b"c" * 16, 5))
    assert (entry.change_id, entry.changes, entry.snapshot) == (b"c" * 16, changes, None)
    image = MetadataImage().apply(4, changes)
    entry = decode(encode_snapshot(image.snapshot(), b"d" * 16, 5))
    assert entry.snapshot is not None
    assert image_of(4, entry.snapshot) == image


@pytest.mark.rule("CM-21", "CM-89")
def test_a_deleted_topic_is_remembered_with_its_partitions_until_its_streams_are_removed() -> None:
    image = MetadataImage().apply(1, CHANGES)
    held = image.partitions
    image = image.apply(2, [TopicDeleted(U, "u", 7, 3)])
    assert image.remains == {U: 3}
    assert image.partitions == held
    assert image_of(2, image.snapshot()).remains == {U: 3}
    again = image.apply(3, [StreamsRemoved(U), StreamsRemoved(bytes(16))])
    assert (again.remains, again.partitions) == ({}, held - 3)
    assert again.is_deleted(shard(U, 0))
    assert image_of(3, again.snapshot()) == again
    assert image.remains == {U: 3}


@pytest.mark.rule("CM-20", "CM-21")
def test_deletions_written_without_a_partition_count_still_replay() -> None:
    record = pb.MetadataRecord(changes=[pb.MetadataChange(topic_deleted=pb.TopicDeleted(topic_id=T, name="t"))])
    image = MetadataImage().apply(1, CHANGES).apply(2, decode(record.SerializeToString()).changes)
    assert image.remains == {T: 2}, "the topic's creation lies in the log, so its partitions are known all the same"
    folded = pb.MetadataRecord(snapshot=pb.MetadataSnapshot(deleted_topics=[pb.TopicDeleted(topic_id=T, name="t")]))
    snapshot = decode(folded.SerializeToString()).snapshot
    assert snapshot is not None
    image = image_of(3, snapshot)
    assert image.remains == {}
    assert image.is_deleted(shard(T, 0))


@pytest.mark.rule("CM-21")
def test_old_deletions_are_forgotten_but_not_those_whose_streams_may_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "DELETED_TOPICS_KEPT", 2)
    ids = [bytes([number] * 16) for number in range(4)]
    image = MetadataImage().apply(1, [TopicDeleted(topic_id, "t", 0, 1) for topic_id in ids])
    assert set(image.deleted) == set(ids)
    image = image.apply(2, [StreamsRemoved(topic_id) for topic_id in ids[1:]])
    assert list(image.deleted) == [ids[0], ids[3]]
    assert image.remains == {ids[0]: 1}
