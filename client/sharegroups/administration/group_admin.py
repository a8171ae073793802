"""Administration of share groups (CL-45, CL-46): list, describe, offsets, delete. One call per group.

Results map each group or partition to its value or its error; an error of a single group is returned, not raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from kip932.acls import OPERATIONS, Operation, ResourceType
from kip932.api.v1.alter_share_group_offsets_pb2 import AlterShareGroupOffsetsRequest
from kip932.api.v1.common_pb2 import StringList
from kip932.api.v1.delete_groups_pb2 import DeleteGroupsRequest
from kip932.api.v1.delete_share_group_offsets_pb2 import DeleteShareGroupOffsetsRequest
from kip932.api.v1.describe_share_group_offsets_pb2 import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kip932.api.v1.list_groups_pb2 import ListGroupsRequest
from kip932.api.v1.share_group_describe_pb2 import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kip932.errors import InQuarantineError, KafkaError, NetworkError, error_for
from kip932.ids import TopicPartition
from sharegroups import arguments
from sharegroups.admin_values import (
    GroupOffsets,
    ListGroupsResult,
    MemberDescription,
    Node,
    ShareGroupDescription,
    ShareGroupOffset,
)
from sharegroups.administration import group_listing
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster
from sharegroups.connection.coordinator_calls import at_coordinator

log = logging.getLogger(__name__)

T = TypeVar("T")
Offsets = GroupOffsets
Places = asyncio.Semaphore
#: How many groups one call asks about at a time; a node accepts 1,000 concurrent calls per connection (CM-93).
GROUPS_AT_ONCE: Final = 64
_COUNTS: Final = (
    "archived_by_limit", "archived_by_reject", "in_flight", "waiting", "oldest_age_ms", "dead_letters",
    "dead_letter_age_ms", "delayed",
)  # fmt: skip


class GroupAdmin:
    """The share-group part of the admin client."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    async def list_groups(
        self, states: Iterable[str] | None = None, types: Iterable[str] | None = None
    ) -> ListGroupsResult:
        """Return the groups of all coordinators, sorted by id, and errors for those that may be missing because no node
        serves them or a node did not answer in time (GC-123). Raises KafkaError when no node answers."""
        request = ListGroupsRequest()
        if states is not None:
            values = arguments.items("list_groups", states, "states", str, 'list_groups(["Stable"])')
            request.states_filter.CopyFrom(StringList(values=values))
        if types is not None:
            values = arguments.items("list_groups", types, "types", str, 'list_groups(types=["share"])')
            request.types_filter.CopyFrom(StringList(values=values))
        return await group_listing.list_groups(self._cluster, request, self._timeout_s)

    async def describe_share_groups(
        self, group_ids: Iterable[str], include_authorized_operations: bool = False
    ) -> dict[str, ShareGroupDescription | KafkaError]:
        """Describe each group (GC-126), on request with the caller's authorized operations (GC-128)."""

        async def one(group_id: str, places: Places) -> ShareGroupDescription:
            return await self._describe(group_id, include_authorized_operations, places)

        return await self._each(_group_ids("describe_share_groups", group_ids), one)

    async def _describe(
        self, group_id: str, with_operations: bool = False, places: Places | None = None
    ) -> ShareGroupDescription:
        async def call(address: str) -> ShareGroupDescription:
            request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=with_operations)
            response = await self._cluster.transport.call(address, wire.DESCRIBE_GROUPS, request, self._timeout_s)
            for group in response.groups:
                if group.group_id == group_id:
                    if error := _refusal(group):
                        raise error
                    host, _, port = address.rpartition(":")
                    return _description(group, Node(self._cluster.node_at(address), host, int(port)))
            raise NetworkError(f"the answer leaves out group {group_id!r}")

        return await at_coordinator(self._cluster, group_id, self._timeout_s, call, places)

    async def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], backlog: bool = False
    ) -> dict[str, Offsets | KafkaError]:
        """Return start offsets and lags by group and partition (GC-110). None means all initialised partitions of the
        group.

        A partition without a start offset has None; `errors` of a group's offsets has the partitions whose offsets are
        currently unavailable. With `backlog`, leaders are asked how many records are in flight, how many are waiting,
        and for how long (GC-109).
        """

        name, instead = "list_share_group_offsets", 'list_share_group_offsets({"workers": None})'
        asked: dict[str, list[TopicPartition] | None] = {}
        for key, parts in arguments.mapping(name, "groups", groups, "group ids to lists or None", instead).items():
            group_id = arguments.text(name, "a group id", key)
            listed = None if parts is None else arguments.items(name, parts, "TopicPartition", object, instead)
            asked[group_id] = None if listed is None else [arguments.partition(name, part) for part in listed]

        async def one(group_id: str, places: Places) -> Offsets:
            return await self._offsets(group_id, asked[group_id], backlog, places)

        return await self._each(asked, one)

    async def _offsets(
        self, group_id: str, partitions: list[TopicPartition] | None, backlog: bool, places: Places
    ) -> Offsets:
        request = DescribeShareGroupOffsetsRequest()
        group = request.groups.add(group_id=group_id, include_backlog=backlog)
        if partitions is not None:
            group.topics.SetInParent()
            for topic, numbers in _by_name(partitions).items():
                group.topics.values.add(topic_name=topic, partitions=numbers)
        return _offsets(await self._offsets_answer(group_id, request, places))

    async def _offsets_answer(
        self, group_id: str, request: DescribeShareGroupOffsetsRequest, places: Places | None = None
    ) -> DescribeShareGroupOffsetsResponse.GroupResult:
        async def call(address: str) -> DescribeShareGroupOffsetsResponse.GroupResult:
            response = await self._cluster.transport.call(address, wire.DESCRIBE_OFFSETS, request, self._timeout_s)
            for result in response.groups:
                if result.group_id == group_id:
                    if error := _refusal(result):
                        raise error
                    return result
            raise NetworkError(f"the answer leaves out group {group_id!r}")

        return await at_coordinator(self._cluster, group_id, self._timeout_s, call, places)

    async def list_share_group_partitions(self, group_id: str) -> dict[TopicPartition, KafkaError | None]:
        """Return all initialised partitions of a group, each with the error for which list_share_group_offsets leaves
        it out.

        Raises KafkaError.
        """
        name = arguments.text("list_share_group_partitions", "group_id", group_id)
        request = DescribeShareGroupOffsetsRequest()
        request.groups.add(group_id=name)
        result = await self._offsets_answer(name, request)
        return {
            TopicPartition(topic.topic_name, part.partition_index): error_for(part.error_code, part.error_message)
            for topic in result.topics
            for part in topic.partitions
        }

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Set start offsets of an empty group (GC-101 to GC-106).

        Raises KafkaError for the group as a whole.
        """
        name, instead = "alter_share_group_offsets", 'alter_share_group_offsets("g", {TopicPartition("orders", 0): 0})'
        arguments.mapping(name, "offsets", offsets, "TopicPartition to offsets", instead)
        for partition, offset in offsets.items():
            arguments.whole(name, f"the offset for {arguments.partition(name, partition)}", offset, 64)
        request = AlterShareGroupOffsetsRequest(group_id=arguments.text(name, "group_id", group_id))
        request.topics.SetInParent()
        for topic, numbers in _by_name(offsets).items():
            entry = request.topics.values.add(topic_name=topic)
            for number in numbers:
                entry.partitions.add(partition_index=number, start_offset=offsets[TopicPartition(topic, number)])

        async def call(address: str) -> dict[TopicPartition, KafkaError | None]:
            response = await self._cluster.transport.call(address, wire.ALTER_OFFSETS, request, self._timeout_s)
            if error := _refusal(response):
                raise error
            return {
                TopicPartition(topic.topic_name, part.partition_index): error_for(part.error_code, part.error_message)
                for topic in response.responses
                for part in topic.partitions
            }

        return await at_coordinator(self._cluster, group_id, self._timeout_s, call)

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete the state of topics of an empty group (GC-97).

        Raises KafkaError for the group as a whole.
        """
        call_name, instead = "delete_share_group_offsets", 'delete_share_group_offsets("workers", ["orders"])'
        request = DeleteShareGroupOffsetsRequest(group_id=arguments.text(call_name, "group_id", group_id))
        request.topics.SetInParent()
        for topic in arguments.items(call_name, topics, "topic names", str, instead):
            request.topics.values.add(topic_name=topic)

        async def call(address: str) -> dict[str, KafkaError | None]:
            response = await self._cluster.transport.call(address, wire.DELETE_OFFSETS, request, self._timeout_s)
            if error := _refusal(response):
                raise error
            return {topic.topic_name: error_for(topic.error_code, topic.error_message) for topic in response.responses}

        return await at_coordinator(self._cluster, group_id, self._timeout_s, call)

    async def delete_share_groups(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete empty groups (GC-90)."""

        async def one(group_id: str, places: Places) -> None:
            async def call(address: str) -> None:
                request = DeleteGroupsRequest(groups_names=[group_id])
                response = await self._cluster.transport.call(address, wire.DELETE_GROUPS, request, self._timeout_s)
                for result in response.results:
                    if error := _refusal(result):
                        raise error

            await at_coordinator(self._cluster, group_id, self._timeout_s, call, places)

        return await self._each(_group_ids("delete_share_groups", group_ids), one)

    @staticmethod
    async def _each(names: Iterable[str], one: Callable[[str, Places], Awaitable[T]]) -> dict[str, T | KafkaError]:
        """Return the outcome of each. At most `GROUPS_AT_ONCE` are requested at a time. All time-outs start now, so a
        call for thousands of groups times out no later than a call for one."""
        places = asyncio.Semaphore(GROUPS_AT_ONCE)

        async def guarded(name: str) -> T | KafkaError:
            try:
                return await one(name, places)
            except KafkaError as error:
                return error

        unique = list(dict.fromkeys(names))
        return dict(zip(unique, await asyncio.gather(*(guarded(name) for name in unique)), strict=True))


def _refusal(result: Any) -> KafkaError | None:
    """Return the error of a group as a whole. A group with quarantined state is not retried; an operator must repair
    it."""
    if result.error_code and result.in_quarantine:
        return InQuarantineError(result.error_message)
    return error_for(result.error_code, result.error_message)


def _group_ids(call: str, given: Iterable[str]) -> list[str]:
    return arguments.items(call, given, "group ids", str, f'{call}(["workers"])')


def _by_name(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(one.partition)
    return topics


def _description(group: ShareGroupDescribeResponse.DescribedGroup, coordinator: Node) -> ShareGroupDescription:
    members = tuple(
        MemberDescription(
            member.member_id,
            member.client_id,
            member.client_host,
            member.rack_id if member.HasField("rack_id") else None,
            member.member_epoch,
            tuple(member.subscribed_topic_names),
            {part.topic_name: tuple(part.partitions) for part in member.assignment.topic_partitions},
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    )
    return ShareGroupDescription(
        group.group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        members,
        coordinator,
        _operations(group.authorized_operations),
    )


def _operations(bits: int) -> frozenset[Operation] | None:
    """Return the operations in a bit field; None when it is negative, because they were not requested."""
    return None if bits < 0 else frozenset(each for each in OPERATIONS[ResourceType.GROUP] if bits >> each & 1)


def _offsets(result: DescribeShareGroupOffsetsResponse.GroupResult) -> Offsets:
    found: dict[TopicPartition, ShareGroupOffset | None] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for topic in result.topics:
        for part in topic.partitions:
            key = TopicPartition(topic.topic_name, part.partition_index)
            if error := error_for(part.error_code, part.error_message):
                errors[key] = error
                place = f"{topic.topic_name}-{part.partition_index}"
                log.warning("group %r: %s is left out of its offsets: %s", result.group_id, place, error)
                continue  # CL-46
            found[key] = (
                None
                if part.start_offset < 0
                else ShareGroupOffset(
                    part.start_offset,
                    part.leader_epoch if part.leader_epoch >= 0 else None,
                    part.lag if part.lag >= 0 else None,
                    *(getattr(part, name) if part.HasField(name) else None for name in _COUNTS),
                )
            )
    return GroupOffsets(found, errors)
