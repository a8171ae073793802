"""Translates heartbeats, descriptions and lists to commands, and their replies to responses (GC-5…GC-28, GC-120…129).

It makes the checks that need no group, runs a command on the group's shard, and puts errors into responses. It keeps no
state. For offsets see `service_offsets`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from group_coordinator.core import commands as c
from group_coordinator.core.validation import check_heartbeat, check_member_id, check_names
from group_coordinator.core.views import Assignment, TopicsView
from group_coordinator.ports import Shards
from kip932 import errors
from kip932.acls import CLUSTER_NAME, ResourceType
from kip932.api.v1 import common_pb2 as common
from kip932.api.v1 import list_groups_pb2 as list_pb
from kip932.api.v1 import share_group_describe_pb2 as describe_pb
from kip932.api.v1 import share_group_heartbeat_pb2 as heartbeat_pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.ids import EPOCH_LEAVE, shard_index
from shard_runtime.cluster.owners import OwnerAddress
from shard_runtime.hosting.kafka_errors import coordinator_failure
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns, check_groups

log = structlog.get_logger(__name__)

SHARE: Final = "share"
NO_OPERATIONS: Final = -(1 << 31)
#: How many groups are described at the same time, and the maximum size in bytes of a response with several groups (a
#: response with one group may be larger).
DESCRIBED_TOGETHER: Final = 16
DESCRIPTIONS_BYTES_MAX: Final = 16 * 1024 * 1024
#: How many groups are listed before other tasks get a turn: up to 10 ms, if access to each must be decided.
LISTED_SLICE: Final = 500


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The edge's dependencies. `owner_of`: a shard's owner, for hints; None when it is not known (CM-14).

    `enabled`: the feature gate (GC-8). `faults`: the log of unexpected errors.
    """

    shards: Shards
    topics: Callable[[], TopicsView]
    owner_of: Callable[[int], OwnerAddress | None]
    enabled: Callable[[], bool] = lambda: True
    faults: RateLimitedLog = field(default_factory=lambda: RateLimitedLog(log))

    def shard_of(self, group_id: str) -> int:
        """Return the index of the group's shard (GC-1)."""
        return shard_index(group_id, self.shards.count)

    async def ask(self, group_id: str, command: c.Command) -> object:
        """Run a command on the group's shard. Every failure is raised as a KafkaError (GC-5)."""
        return await self.shards.submit(self.shard_of(group_id), command)

    def require_enabled(self) -> None:
        """Raise unless share groups are enabled (GC-8, GC-10)."""
        if not self.enabled():
            raise errors.UnsupportedVersionError

    @staticmethod
    def require_group(caller: CallContext, group_id: str) -> None:
        """Raise unless the caller is authorized to do what its RPC does to the group (GC-139). Call this first, so that
        a refusal reveals nothing about topics (GC-149)."""
        caller.require(ResourceType.GROUP, group_id)

    @staticmethod
    def require_group_id(group_id: str) -> None:
        """Raise for an empty group id (GC-90, GC-96, GC-101, GC-125)."""
        if not group_id:
            raise errors.InvalidGroupIdError("The group id must not be empty.")

    def failure(self, error: Exception) -> tuple[errors.KafkaError, str | None]:
        """Return the error for the response, and its text. An unexpected error is logged, and returned without text
        (GC-5)."""
        if not isinstance(error, errors.KafkaError):
            self.faults.error("request_failed", key=type(error).__name__, exc_info=error)
        answer = coordinator_failure(error)
        hidden = isinstance(answer, errors.UnknownServerError) and answer.message == type(answer).__doc__
        return answer, None if hidden else answer.message

    def coordinator_hint(self, error: errors.KafkaError, group_id: str) -> common.NodeEndpoint | None:
        """Return the owner of the group's shard for NOT_COORDINATOR, else None (CM-14)."""
        if not isinstance(error, errors.NotCoordinatorError):
            return None
        owner = self.owner_of(self.shard_of(group_id))
        return None if owner is None else common.NodeEndpoint(node_id=owner.node_id, host=owner.host, port=owner.port)


def error_code(error: errors.KafkaError) -> ErrorCode.ValueType:
    """Return the enum value with the error's number in Kafka."""
    return ErrorCode.ValueType(error.code)


def host_text(peer: str) -> str:
    """Write a caller's host as Kafka does: `/10.0.0.7` (GC-24b)."""
    return f"/{peer}"


class _Listed(NamedTuple):
    """The groups of the shards that answered, and the errors of the others."""

    groups: list[c.ListedGroup]
    unserved: dict[int, Exception]


class GroupCoordinator:
    """The handlers. `rebalanced` is called for each heartbeat that bumped a group epoch (GC-152)."""

    def __init__(self, around: Surroundings, rebalanced: Callable[[], None] = lambda: None) -> None:
        self._around = around
        self._rebalanced = rebalanced

    async def share_group_heartbeat(
        self, request: heartbeat_pb.ShareGroupHeartbeatRequest, context: CallContext
    ) -> heartbeat_pb.ShareGroupHeartbeatResponse:
        """Join a group, stay in it, or leave it (GC-10…GC-35)."""
        try:
            reply = await self._beat(request, context)
        except Exception as error:
            answer, text = self._around.failure(error)
            return heartbeat_pb.ShareGroupHeartbeatResponse(
                error_code=error_code(answer),
                error_message=text,
                coordinator=self._around.coordinator_hint(answer, request.group_id),
            )
        if reply.rebalanced:
            self._rebalanced()
        return heartbeat_pb.ShareGroupHeartbeatResponse(
            member_id=reply.member_id,
            member_epoch=reply.member_epoch,
            heartbeat_interval_ms=reply.heartbeat_interval_ms,
            assignment=None if reply.assignment is None else _heartbeat_assignment(reply.assignment),
        )

    async def share_group_describe(
        self, request: describe_pb.ShareGroupDescribeRequest, context: CallContext
    ) -> describe_pb.ShareGroupDescribeResponse:
        """Describe groups, each once and by its own shard (GC-7, GC-125…GC-129). Raises InvalidRequestError for too
        many groups or too large a response (CM-91)."""
        check_groups(len(request.group_ids), request.group_ids)
        group_ids = list(dict.fromkeys(request.group_ids))
        response, size = describe_pb.ShareGroupDescribeResponse(), 0
        for begin in range(0, len(group_ids), DESCRIBED_TOGETHER):
            groups = await asyncio.gather(
                *(
                    self._describe(group_id, request.include_authorized_operations, context)
                    for group_id in group_ids[begin : begin + DESCRIBED_TOGETHER]
                )
            )
            size += sum(group.ByteSize() for group in groups)
            if size > DESCRIPTIONS_BYTES_MAX and len(group_ids) > 1:
                raise errors.InvalidRequestError(
                    f"the descriptions of {len(group_ids)} groups have more than {DESCRIPTIONS_BYTES_MAX} bytes; "
                    "describe fewer groups by one request"
                )
            response.groups.extend(groups)
        return response

    async def list_groups(self, request: list_pb.ListGroupsRequest, context: CallContext) -> list_pb.ListGroupsResponse:
        """List this node's groups, and the shards that it cannot answer for (GC-120…GC-123)."""
        found = await self._list()
        states = {value.strip().lower() for value in request.states_filter.values}
        types = {value.lower() for value in request.types_filter.values}
        everything = context.may(ResourceType.CLUSTER, CLUSTER_NAME)
        response, turns = list_pb.ListGroupsResponse(), Turns(LISTED_SLICE)
        for group in sorted(found.groups):
            await turns.step()
            if (
                (not types or SHARE in types)
                and (not states or group.state.lower() in states)
                and (everything or context.may(ResourceType.GROUP, group.group_id))
            ):
                response.groups.add(
                    group_id=group.group_id,
                    protocol_type=SHARE,
                    group_state=group.state,
                    group_type=SHARE,
                    members=group.members,
                )
        for shard, error in found.unserved.items():
            answer, text = self._around.failure(error)
            code = error_code(answer)
            response.unserved_shards.add(shard=shard, error_code=code, error_message=text)
            if not response.error_code and not isinstance(answer, errors.NotCoordinatorError):
                response.error_code = code
                if text is not None:
                    response.error_message = text
        return response

    # ---- heartbeat

    async def _beat(self, request: heartbeat_pb.ShareGroupHeartbeatRequest, context: CallContext) -> c.HeartbeatReply:
        command = self._heartbeat_command(request, context)
        try:
            reply = await self._around.ask(request.group_id, command)
        except errors.GroupAuthorizationFailedError:  # the leave is not by the principal that joined
            self._around.require_group(context, request.group_id)
            raise
        assert isinstance(reply, c.HeartbeatReply)
        return reply

    def _heartbeat_command(self, request: heartbeat_pb.ShareGroupHeartbeatRequest, context: CallContext) -> c.Heartbeat:
        """Check the request (GC-10…GC-18, in that order), and make its command. A caller that is not authorized to read
        the group may still leave if it is the principal that joined (GC-23b); a request that fails a check is then
        refused like any other unauthorized one (GC-149)."""
        around = self._around
        around.require_enabled()
        if request.member_epoch != EPOCH_LEAVE:
            around.require_group(context, request.group_id)
        reads = context.may(ResourceType.GROUP, request.group_id)
        try:
            return self._checked_command(request, context, None if reads else errors.GroupAuthorizationFailedError())
        except errors.KafkaError:
            around.require_group(context, request.group_id)
            raise

    @staticmethod
    def _checked_command(
        request: heartbeat_pb.ShareGroupHeartbeatRequest, context: CallContext, refused: errors.KafkaError | None
    ) -> c.Heartbeat:
        check_member_id(request.member_id)
        names = tuple(request.subscribed_topic_names.values) if request.HasField("subscribed_topic_names") else None
        check_names(names or ())
        for name in names or ():
            context.require(ResourceType.TOPIC, name)
        command = c.Heartbeat(
            request.group_id,
            request.member_id,
            request.member_epoch,
            request.rack_id if request.HasField("rack_id") else None,
            names,
            context.client_id,
            host_text(context.peer),
            context.principal or "",
            refused,
        )
        check_heartbeat(command)
        return command

    # ---- describe, list

    async def _describe(
        self, group_id: str, with_operations: bool, context: CallContext
    ) -> describe_pb.ShareGroupDescribeResponse.DescribedGroup:
        around = self._around
        try:
            around.require_enabled()
            around.require_group(context, group_id)
            around.require_group_id(group_id)
            group = await around.ask(group_id, c.Describe(group_id))
            assert isinstance(group, c.DescribedGroup)
            named = {*group.topic_names.values(), *(name for member in group.members for name in member.subscribed)}
            if any(context.refusal(ResourceType.TOPIC, name) is not None for name in sorted(named)):
                raise errors.TopicAuthorizationFailedError(
                    "The group has described topic(s) that the client is not authorized to describe."
                )
        except errors.GroupIdNotFoundError as error:  # its first member may have been refused
            lately = context.refused_lately(group_id)
            return self._undescribed(group_id, type(error)(f"{error.message} {lately}") if lately else error)
        except Exception as error:
            return self._undescribed(group_id, error)
        operations = context.operations(ResourceType.GROUP, group_id) if with_operations else NO_OPERATIONS
        return _described(group, operations)

    def _undescribed(self, group_id: str, error: Exception) -> describe_pb.ShareGroupDescribeResponse.DescribedGroup:
        answer, text = self._around.failure(error)
        return describe_pb.ShareGroupDescribeResponse.DescribedGroup(
            group_id=group_id,
            error_code=error_code(answer),
            error_message=text,
            authorized_operations=NO_OPERATIONS,
            coordinator=self._around.coordinator_hint(answer, group_id),
            in_quarantine=isinstance(answer, errors.InQuarantineError),
        )

    async def _list(self) -> _Listed:
        shards = self._around.shards
        answers = await asyncio.gather(
            *(shards.submit(index, c.ListAll()) for index in range(shards.count)), return_exceptions=True
        )
        found = _Listed([], {})
        for index, answer in enumerate(answers):
            if isinstance(answer, list):
                found.groups.extend(answer)
            elif isinstance(answer, Exception):
                found.unserved[index] = answer
        return found


def _heartbeat_assignment(assignment: Assignment) -> heartbeat_pb.ShareGroupHeartbeatResponse.Assignment:
    response = heartbeat_pb.ShareGroupHeartbeatResponse
    return response.Assignment(
        topic_partitions=[
            response.TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in assignment.items()
        ]
    )


def _described(group: c.DescribedGroup, operations: int) -> describe_pb.ShareGroupDescribeResponse.DescribedGroup:
    response = describe_pb.ShareGroupDescribeResponse
    members = [
        response.Member(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=member.subscribed,
            assignment=response.Assignment(
                topic_partitions=[
                    response.TopicPartitions(
                        topic_id=topic_id, topic_name=group.topic_names[topic_id], partitions=indexes
                    )
                    for topic_id, indexes in member.assigned.items()
                    if topic_id in group.topic_names
                ]
            ),
        )
        for member in group.members
    ]
    return response.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name,
        members=members,
        authorized_operations=operations,
    )
