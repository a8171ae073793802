"""Administration of share groups (CL-45, CL-46): list, describe, offsets, delete. One call per group, run side by side.

Results map each group or partition to its value or its error; an error of a single group is returned, not raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from kip932.api.v1.alter_share_group_offsets_pb2 import AlterShareGroupOffsetsRequest
from kip932.api.v1.common_pb2 import NodeEndpoint, StringList
from kip932.api.v1.delete_groups_pb2 import DeleteGroupsRequest
from kip932.api.v1.delete_share_group_offsets_pb2 import DeleteShareGroupOffsetsRequest
from kip932.api.v1.describe_share_group_offsets_pb2 import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kip932.api.v1.list_groups_pb2 import ListGroupsRequest
from kip932.api.v1.share_group_describe_pb2 import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kip932.errors import KafkaError, NetworkError, error_for
from kip932.ids import TopicPartition
from kip932.rpc.transport import TransportError
from sharegroups import arguments, wire
from sharegroups.admin_values import (
    GroupListing,
    MemberDescription,
    Node,
    ShareGroupDescription,
    ShareGroupOffset,
)
from sharegroups.aio.cluster import Cluster
from sharegroups.aio.coordinator_calls import at_coordinator, until_answered

log = logging.getLogger(__name__)

T = TypeVar("T")
Offsets = dict[TopicPartition, ShareGroupOffset | None]
_ROLE = "group-coordinator"


class GroupAdmin:
    """The share-group half of the admin client."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    async def list_groups(
        self, states: Iterable[str] | None = None, types: Iterable[str] | None = None
    ) -> list[GroupListing]:
        """Groups of all coordinators, sorted by id (GC-123). Raises KafkaError when one does not answer in time."""
        request = ListGroupsRequest()
        if states is not None:
            values = arguments.items("list_groups", states, "states", str, 'list_groups(["Stable"])')
            request.states_filter.CopyFrom(StringList(values=values))
        if types is not None:
            values = arguments.items("list_groups", types, "types", str, 'list_groups(types=["share"])')
            request.types_filter.CopyFrom(StringList(values=values))
        return await until_answered(self._cluster, "ListGroups", self._timeout_s, lambda: self._list(request))

    async def _list(self, request: ListGroupsRequest) -> list[GroupListing]:
        metadata = await self._cluster.fetch_metadata([])
        nodes = [node for node in metadata.brokers if not node.roles or _is_coordinator(node)]
        answers = await asyncio.gather(*(self._list_at(wire.address_of(node), request) for node in nodes))
        found = {group.group_id: group for groups in answers for group in groups}
        return [found[group_id] for group_id in sorted(found)]

    async def _list_at(self, address: str, request: ListGroupsRequest) -> list[GroupListing]:
        try:
            response = await self._cluster.transport.call(address, wire.LIST_GROUPS, request, self._timeout_s)
        except TransportError as error:
            raise NetworkError(f"groups could not be listed: {error}") from error
        if refusal := error_for(response.error_code, response.error_message):
            raise refusal
        return [GroupListing(group.group_id, group.group_state, group.group_type) for group in response.groups]

    async def describe_share_groups(self, group_ids: Iterable[str]) -> dict[str, ShareGroupDescription | KafkaError]:
        """Describe each group (GC-126)."""
        return await self._each(_group_ids("describe_share_groups", group_ids), self._describe)

    async def _describe(self, group_id: str) -> ShareGroupDescription:
        async def call(address: str) -> ShareGroupDescription:
            request = ShareGroupDescribeRequest(group_ids=[group_id])
            response = await self._cluster.transport.call(address, wire.DESCRIBE_GROUPS, request, self._timeout_s)
            for group in response.groups:
                if group.group_id == group_id:
                    if error := error_for(group.error_code, group.error_message):
                        raise error
                    host, _, port = address.rpartition(":")
                    return _description(group, Node(self._cluster.node_at(address), host, int(port)))
            raise NetworkError(f"the answer leaves out group {group_id!r}")

        return await at_coordinator(self._cluster, group_id, self._timeout_s, call)

    async def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, Offsets | KafkaError]:
        """Start offsets and lags by group and partition (GC-110). For None: of all initialised partitions of the group.

        A partition without a start offset has None.
        """

        name, instead = "list_share_group_offsets", 'list_share_group_offsets({"workers": None})'
        asked: dict[str, list[TopicPartition] | None] = {}
        for key, parts in arguments.mapping(name, "groups", groups, "group ids to lists or None", instead).items():
            group_id = arguments.text(name, "a group id", key)
            listed = None if parts is None else arguments.items(name, parts, "TopicPartition", object, instead)
            asked[group_id] = None if listed is None else [arguments.partition(name, part) for part in listed]

        async def one(group_id: str) -> Offsets:
            return await self._offsets(group_id, asked[group_id])

        return await self._each(asked, one)

    async def _offsets(self, group_id: str, partitions: list[TopicPartition] | None) -> Offsets:
        request = DescribeShareGroupOffsetsRequest()
        group = request.groups.add(group_id=group_id)
        if partitions is not None:
            group.topics.SetInParent()
            for topic, numbers in _by_name(partitions).items():
                group.topics.values.add(topic_name=topic, partitions=numbers)

        async def call(address: str) -> Offsets:
            response = await self._cluster.transport.call(address, wire.DESCRIBE_OFFSETS, request, self._timeout_s)
            for result in response.groups:
                if result.group_id == group_id:
                    if error := error_for(result.error_code, result.error_message):
                        raise error
                    return _offsets(result)
            raise NetworkError(f"the answer leaves out group {group_id!r}")

        return await at_coordinator(self._cluster, group_id, self._timeout_s, call)

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
            if error := error_for(response.error_code, response.error_message):
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
            if error := error_for(response.error_code, response.error_message):
                raise error
            return {topic.topic_name: error_for(topic.error_code, topic.error_message) for topic in response.responses}

        return await at_coordinator(self._cluster, group_id, self._timeout_s, call)

    async def delete_share_groups(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete empty groups (GC-90)."""

        async def one(group_id: str) -> None:
            async def call(address: str) -> None:
                request = DeleteGroupsRequest(groups_names=[group_id])
                response = await self._cluster.transport.call(address, wire.DELETE_GROUPS, request, self._timeout_s)
                for result in response.results:
                    if error := error_for(result.error_code, result.error_message):
                        raise error

            await at_coordinator(self._cluster, group_id, self._timeout_s, call)

        return await self._each(_group_ids("delete_share_groups", group_ids), one)

    @staticmethod
    async def _each(names: Iterable[str], one: Callable[[str], Awaitable[T]]) -> dict[str, T | KafkaError]:
        async def guarded(name: str) -> T | KafkaError:
            try:
                return await one(name)
            except KafkaError as error:
                return error

        unique = list(dict.fromkeys(names))
        return dict(zip(unique, await asyncio.gather(*(guarded(name) for name in unique)), strict=True))


def _group_ids(call: str, given: Iterable[str]) -> list[str]:
    return arguments.items(call, given, "group ids", str, f'{call}(["workers"])')


def _is_coordinator(node: NodeEndpoint) -> bool:
    return any(role.replace("_", "-") == _ROLE for role in node.roles)


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
    )


def _offsets(result: DescribeShareGroupOffsetsResponse.GroupResult) -> Offsets:
    found: Offsets = {}
    for topic in result.topics:
        for part in topic.partitions:
            if part.error_code:
                error = error_for(part.error_code, part.error_message)
                place = f"{topic.topic_name}-{part.partition_index}"
                log.warning("group %r: %s is left out of its offsets: %s", result.group_id, place, error)
                continue  # CL-46
            key = TopicPartition(topic.topic_name, part.partition_index)
            found[key] = (
                None
                if part.start_offset < 0
                else ShareGroupOffset(
                    part.start_offset,
                    part.leader_epoch if part.leader_epoch >= 0 else None,
                    part.lag if part.lag >= 0 else None,
                    part.archived_by_limit if part.HasField("archived_by_limit") else None,
                    part.archived_by_reject if part.HasField("archived_by_reject") else None,
                )
            )
    return found
