"""What a refused caller can learn about topic names from the responses of the cluster service, and that serving it does
not hold up other callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from kip932.acls import Acl, Operation, PatternType, Permission, ResourceType
from kip932.api.v1.create_partitions_pb2 import CreatePartitionsRequest
from kip932.api.v1.create_topics_pb2 import CreateTopicsRequest
from kip932.api.v1.delete_topics_pb2 import DeleteTopicsRequest
from kip932.api.v1.metadata_pb2 import MetadataRequest
from kip932.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from shard_runtime.cluster import lookups
from shard_runtime.cluster.lookups import Lookups
from shard_runtime.cluster.metadata import Change, MetadataImage, TopicCreated
from shard_runtime.cluster.topic_admin import TopicAdmin
from shard_runtime.rpc.access import Access, Rights
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.table import RPCS
from tests.support.clocks import HandClock

pytestmark = pytest.mark.asyncio

_PATH = "/kip932.api.v1.ClusterService/"


class Node:
    """One node, alone, without leaders: its metadata, and what it needs to answer."""

    cluster_id = "c"

    def __init__(self, topics: int = 1) -> None:
        made = [TopicCreated(f"t{number}", _id(number), 1, {}, 0) for number in range(topics)]
        self.image = MetadataImage().apply(1, made)
        self.access = Access()
        self.lookups = Lookups(cast(Any, self), cast(Any, self), cast(Any, self), 1, 1)
        self.topics = TopicAdmin(cast(Any, self), cast(Any, None), HandClock())

    def allow(self, *entries: Acl) -> None:
        self.access.follow(frozenset(entries))

    def caller(self, rpc: str) -> CallContext:
        rights = Rights(self.access, "User:a", "10.0.0.7", RPCS[_PATH + rpc].needs)
        return CallContext("10.0.0.7", "c1", lambda: None, "User:a", rights=rights)

    async def delete(self, *names: str) -> list[tuple[int, str]]:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=name) for name in names])
        response = await self.topics.delete_topics(request, self.caller("DeleteTopics"))
        return [(one.error_code, one.error_message.replace(one.name, "NAME")) for one in response.responses]

    async def change(self, decide: Callable[[MetadataImage], Sequence[Change]]) -> None:
        self.image = self.image.apply(self.image.version + 1, tuple(decide(self.image)))

    async def refresh(self, _kind: object) -> None:
        pass

    def peek(self, _shard: object) -> None:
        pass

    def nodes(self) -> list[Any]:
        return []


def _id(number: int) -> bytes:
    return bytes(12) + (number + 1).to_bytes(4)


def _entry(operation: Operation, permission: Permission = Permission.ALLOW) -> Acl:
    return Acl(ResourceType.TOPIC, "*", PatternType.LITERAL, "User:a", "*", operation, permission)


@pytest.mark.rule("CM-61")
async def test_a_guessed_name_and_an_id_are_answered_alike_whether_they_are_of_one_topic_or_not() -> None:
    node = Node(topics=2)
    for guessed in ("t0", "t1", "none"):
        asked = MetadataRequest()
        asked.topics.values.add(name=guessed)
        asked.topics.values.add(topic_id=_id(0))
        response = await node.lookups.metadata(asked, node.caller("Metadata"))
        found = [(one.error_code, one.name, one.topic_id) for one in response.topics]
        code = TopicAuthorizationFailedError.code
        assert found == [(code, guessed, bytes(16)), (code, "", _id(0))]


@pytest.mark.rule("CM-61")
async def test_a_deletion_that_is_refused_does_not_show_whether_the_topic_exists() -> None:
    node = Node()
    there, missing = await node.delete("t0", "none")
    assert there == missing
    assert there[0] == TopicAuthorizationFailedError.code
    node.allow(_entry(Operation.DESCRIBE))
    assert (await node.delete("none"))[0][0] == UnknownTopicOrPartitionError.code
    node.allow(_entry(Operation.DELETE), _entry(Operation.DESCRIBE, Permission.DENY))
    assert (await node.delete("none"))[0][0] == TopicAuthorizationFailedError.code


@pytest.mark.rule("CM-94", "CM-61")
async def test_others_get_turns_while_all_topics_are_left_out_for_a_caller_without_rights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "PARTITIONS_SLICE", 10)
    node, turns = Node(topics=100), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    response = await node.lookups.metadata(MetadataRequest(), node.caller("Metadata"))
    task.cancel()
    assert (len(response.topics), turns >= 10) == (0, True)


@pytest.mark.rule("CM-61")
async def test_who_may_change_no_topic_of_a_request_makes_no_work_for_the_store() -> None:
    """Earlier the end of the metadata log was read for each such request."""
    node = Node(topics=1)
    read = node.change

    async def refuse(decide: Callable[[MetadataImage], Sequence[Change]]) -> None:
        raise AssertionError("the metadata log was read")

    node.change = refuse  # type: ignore[method-assign]
    new = CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(name=name, num_partitions=1) for name in ("t0", "new")])
    grown = CreatePartitionsRequest(topics=[CreatePartitionsRequest.Topic(name="t0", count=5)])
    refused = TopicAuthorizationFailedError.code
    created = await node.topics.create_topics(new, node.caller("CreateTopics"))
    assert [one.error_code for one in created.topics] == [refused] * 2
    added = await node.topics.create_partitions(grown, node.caller("CreatePartitions"))
    assert [one.error_code for one in added.results] == [refused]
    assert [code for code, _ in await node.delete("t0", "none")] == [refused] * 2
    gone = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(topic_id=_id(0))])
    deleted = await node.topics.delete_topics(gone, node.caller("DeleteTopics"))
    assert [one.error_code for one in deleted.responses] == [refused]
    assert node.access.refused.total() == 6

    node.change = read  # type: ignore[method-assign]
    node.allow(_entry(Operation.DELETE))
    assert [code for code, _ in await node.delete("t0")] == [0]
    assert not node.image.topics
