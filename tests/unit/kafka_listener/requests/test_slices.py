"""Requests that name thousands of topics or partitions: other tasks of the node run between slices of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Final

import pytest
from google.protobuf.message import Message

from kafka_listener.messages.apis import api
from kafka_listener.ports import NO_TOPIC_ID, Making, Paced
from kafka_listener.requests.slices import ELEMENTS_SLICE, ITEMS_SLICE, made_of, slices, written
from kafka_listener.requests.table import HANDLERS
from kip932.api.v1 import (
    alter_share_group_offsets_pb2,
    delete_groups_pb2,
    delete_share_group_offsets_pb2,
    describe_share_group_offsets_pb2,
    list_groups_pb2,
    metadata_pb2,
    share_acknowledge_pb2,
    share_fetch_pb2,
    share_group_describe_pb2,
    share_group_heartbeat_pb2,
)
from kip932.errors import InvalidRequestError
from tests.support.kafka_values import full
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection
from tests.unit.kafka_listener.requests.test_table import NODE, known

METADATA: Final = api("Metadata")
MANY: Final = 2_000
#: In how many slices so many items are translated, at least.
SLICES: Final = MANY // ITEMS_SLICE


class Busy:
    """Counts how often another task of the loop runs."""

    def __init__(self) -> None:
        self.turns = 0

    async def run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


@contextmanager
def busy() -> Iterator[Busy]:
    other = Busy()
    task = asyncio.get_running_loop().create_task(other.run())
    try:
        yield other
    finally:
        task.cancel()


def of_topics(response: Any, results: str) -> Callable[[Any], Message]:
    """Return what answers for each partition of each topic of a share request."""

    def answer(request: Any) -> Message:
        made: Message = response()
        for topic in getattr(request.topics, "values", request.topics):
            one = getattr(made, results).add(topic_id=getattr(topic, "topic_id", b""))
            for _ in getattr(topic, "partitions", ()):
                one.partitions.add(error_code=3, error_message="unknown")
        return made

    return answer


def offsets(request: Any) -> Message:
    response = describe_share_group_offsets_pb2.DescribeShareGroupOffsetsResponse()
    for group in request.groups:
        into = response.groups.add(group_id=group.group_id)
        for topic in group.topics.values:
            into.topics.add(topic_name=topic.topic_name).partitions.add(partition_index=0)
    return response


def groups(request: Any) -> Message:
    response = share_group_describe_pb2.ShareGroupDescribeResponse()
    for group_id in request.group_ids:
        response.groups.add(group_id=group_id)
    return response


def deleted(request: Any) -> Message:
    response = delete_groups_pb2.DeleteGroupsResponse()
    for group_id in request.groups_names:
        response.results.add(group_id=group_id)
    return response


def beat(request: Any) -> Message:
    response = share_group_heartbeat_pb2.ShareGroupHeartbeatResponse()
    for _ in request.subscribed_topic_names.values:
        response.assignment.topic_partitions.add(partitions=[0])
    return response


SHARE: Final[dict[str, Any]] = {
    "share_group_heartbeat": beat,
    "share_group_describe": groups,
    "delete_groups": deleted,
    "describe_share_group_offsets": offsets,
    "alter_share_group_offsets": of_topics(alter_share_group_offsets_pb2.AlterShareGroupOffsetsResponse, "responses"),
    "delete_share_group_offsets": of_topics(
        delete_share_group_offsets_pb2.DeleteShareGroupOffsetsResponse, "responses"
    ),
    "share_fetch": of_topics(share_fetch_pb2.ShareFetchResponse, "responses"),
    "share_acknowledge": of_topics(share_acknowledge_pb2.ShareAcknowledgeResponse, "responses"),
}


class Counting(ScriptedConnection):
    """A connection that notes how often the other task had run when the node was asked."""

    def __init__(self, other: Busy, **answers: Any) -> None:
        super().__init__(**answers)
        self._other = other
        self.asked_at: int | None = None

    async def call(self, rpc: str, request: Message) -> Any:
        if self.asked_at is None:
            self.asked_at = self._other.turns
        return await super().call(rpc, request)

    async def share_fetch(self, group: str, member: str, epoch: int, make: Making[Any]) -> Any:
        request = await make()
        assert request is not None
        return await self.call("share_fetch", request)

    async def share_acknowledge(self, group: str, member: str, epoch: int, make: Making[Any]) -> Any:
        request = await make()
        assert request is not None
        return await self.call("share_acknowledge", request)


#: What would have a request refused before the node is asked.
PLAIN: Final[dict[str, Any]] = {
    "assignments": [],
    "acknowledgement_batches": [],
    "cursor": None,
    "response_partition_limit": MANY,
}


def wide(name: str, path: str) -> Any:
    """Return a request in which the list at this path, such as `topics.partitions`, is long."""
    struct = request = known(full(api(name), "request", api(name).versions.stop - 1))
    *within, last = path.split(".")
    for field in within:
        setattr(struct, field, getattr(struct, field)[:1])
        (struct,) = getattr(struct, field)
    (first, *_) = getattr(struct, last)
    for field in PLAIN.keys() & set(type(struct).__slots__) - {last}:
        setattr(struct, field, PLAIN[field])
    setattr(struct, last, [numbered(first, number, name) for number in range(MANY)])
    return request


def numbered(first: Any, number: int, name: str) -> Any:
    """Return a copy of an item that the request does not have yet, and that the node is asked for."""
    if isinstance(first, str):
        return f"name-{number}"
    made = copy(first)
    for field in PLAIN.keys() & set(type(made).__slots__):
        setattr(made, field, PLAIN[field])
    if name in {"DescribeTopicPartitions", "AlterUserScramCredentials"}:
        made.name = f"name-{number}"
    if name == "DeleteTopics":
        made.topic_id = NO_TOPIC_ID
    if hasattr(made, "partition_index"):
        made.partition_index = number
    if hasattr(made, "partitions") and not isinstance(made.partitions[0], int):
        made.partitions = [numbered(made.partitions[0], number, name)]
    return made


#: Each long list: its API, its path, and whether the request and the answer are translated in slices. Lists of names
#: and of numbers are copied at once, and some answers have one entry for all items of a list.
WIDE: Final = (
    ("Produce", "topic_data", True, True),
    ("Produce", "topic_data.partition_data", True, True),
    ("Fetch", "topics", True, True),
    ("Fetch", "topics.partitions", True, True),
    ("ListOffsets", "topics", True, True),
    ("ListOffsets", "topics.partitions", True, True),
    ("DeleteRecords", "topics", True, True),
    ("DeleteRecords", "topics.partitions", True, True),
    ("Metadata", "topics", True, True),
    ("FindCoordinator", "coordinator_keys", False, True),
    ("CreateTopics", "topics", True, True),
    ("CreateTopics", "topics.configs", True, False),
    ("DeleteTopics", "topics", True, True),
    ("CreatePartitions", "topics", True, True),
    ("DescribeConfigs", "resources", True, True),
    ("IncrementalAlterConfigs", "resources", True, True),
    ("IncrementalAlterConfigs", "resources.configs", True, False),
    ("CreateAcls", "creations", True, True),
    ("DeleteAcls", "filters", True, True),
    ("AlterClientQuotas", "entries", True, True),
    ("DescribeUserScramCredentials", "users", True, True),
    ("AlterUserScramCredentials", "deletions", True, False),
    ("AlterUserScramCredentials", "upsertions", True, True),
    ("DescribeTopicPartitions", "topics", True, True),
    ("ShareGroupHeartbeat", "subscribed_topic_names", False, True),
    ("ShareGroupDescribe", "group_ids", False, True),
    ("DeleteGroups", "groups_names", False, True),
    ("ShareFetch", "topics", True, True),
    ("ShareFetch", "topics.partitions", True, True),
    ("ShareFetch", "forgotten_topics_data", True, False),
    ("ShareFetch", "topics.partitions.acknowledgement_batches", True, False),
    ("ShareAcknowledge", "topics", True, True),
    ("ShareAcknowledge", "topics.partitions", True, True),
    ("ShareAcknowledge", "topics.partitions.acknowledgement_batches", True, False),
    ("DescribeShareGroupOffsets", "groups", True, True),
    ("DescribeShareGroupOffsets", "groups.topics", True, True),
    ("AlterShareGroupOffsets", "topics", True, True),
    ("AlterShareGroupOffsets", "topics.partitions", True, True),
    ("DeleteShareGroupOffsets", "topics", True, True),
)
#: They name one thing, or nothing, or kinds of entities.
SINGLE: Final = {"InitProducerId", "EndTxn", "DescribeCluster", "ListGroups", "DescribeAcls", "DescribeClientQuotas"}


def test_each_request_that_names_many_things_is_among_these() -> None:
    assert {row[0] for row in WIDE} | SINGLE == {handler.api for handler in HANDLERS.values()}


@pytest.mark.rule("KL-120")
@pytest.mark.parametrize(("name", "path", "in_request", "in_answer"), WIDE)
@virtual
async def test_other_tasks_run_while_a_long_request_and_its_answer_are_translated(
    name: str, path: str, in_request: bool, in_answer: bool
) -> None:
    handler, version = HANDLERS[api(name).key], api(name).versions.stop - 1
    with busy() as other:
        connection = Counting(other, **(NODE | SHARE))
        await handler.answer(wide(name, path), version, connection)
        assert connection.asked_at is not None
        assert (connection.asked_at >= SLICES) == in_request
        assert (other.turns - connection.asked_at >= SLICES) == in_answer


@pytest.mark.rule("KL-120")
@pytest.mark.parametrize("name", [row[0] for row in WIDE if row[3] and "." not in row[1]])
@virtual
async def test_other_tasks_run_while_each_item_of_a_long_request_is_refused(name: str) -> None:
    handler, version = HANDLERS[api(name).key], api(name).versions.stop - 1
    with busy() as other:
        connection = Counting(other, **dict.fromkeys(NODE | SHARE, InvalidRequestError("no")))
        (path,) = (row[1] for row in WIDE if row[0] == name and row[3] and "." not in row[1])
        response = await handler.answer(wide(name, path), version, connection)
        response = response.response if isinstance(response, Paced) else response
        listed = [each for each in type(response).__slots__ if isinstance(getattr(response, each), list)]
        long = any(len(getattr(response, each)) == MANY for each in listed)
        assert connection.asked_at is not None
        assert (other.turns - connection.asked_at >= SLICES) == long
        assert long or response.error_code == InvalidRequestError.code


@pytest.mark.rule("KL-120")
@virtual
async def test_other_tasks_run_while_a_topic_of_many_partitions_and_a_group_of_many_members_are_translated() -> None:
    found = metadata_pb2.MetadataResponse()
    topic = found.topics.add(name="orders")
    for number in range(MANY):
        topic.partitions.add(partition_index=number, leader_id=1)
    described = share_group_describe_pb2.ShareGroupDescribeResponse()
    group = described.groups.add(group_id="g")
    for number in range(MANY):
        group.members.add(member_id=f"m{number}")
    listed = list_groups_pb2.ListGroupsResponse()
    for number in range(MANY):
        listed.groups.add(group_id=f"g{number}")
    group_ids = api("ShareGroupDescribe").request(group_ids=["g"])
    for name, request in (
        ("Metadata", METADATA.request(topics=None)),
        ("DescribeTopicPartitions", api("DescribeTopicPartitions").request(topics=[])),
        ("ShareGroupDescribe", group_ids),
        ("ListGroups", api("ListGroups").request()),
    ):
        with busy() as other:
            connection = Counting(other, metadata=found, share_group_describe=described, list_groups=listed)
            await HANDLERS[api(name).key].answer(request, api(name).versions.stop - 1, connection)
            assert other.turns >= SLICES, name


@pytest.mark.rule("KL-120")
@pytest.mark.parametrize("topics", [1, MANY])
@virtual
async def test_other_tasks_run_while_a_long_answer_is_written(topics: int) -> None:
    response = METADATA.response
    partitions = [response.MetadataResponsePartition(partition_index=each) for each in range(MANY // topics)]
    each = response.MetadataResponseTopic(name="orders", partitions=partitions)
    answer = response(topics=[each] * topics)
    with busy() as other:
        parts = await written(METADATA, 12, answer)
        assert other.turns >= MANY // ELEMENTS_SLICE
    assert b"".join(parts) == b"".join(METADATA.encode_response(12, answer))


@virtual
async def test_short_lists_are_translated_at_once() -> None:
    with busy() as other:
        assert await made_of(range(ITEMS_SLICE - 1), str, slices()) == [str(each) for each in range(ITEMS_SLICE - 1)]
        assert other.turns == 0
        assert len(await made_of(range(MANY), str, slices())) == MANY
        assert other.turns == SLICES
