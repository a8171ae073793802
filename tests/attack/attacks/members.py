"""Attacks with well-formed calls of share groups: members that join and vanish, sessions that are never closed."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import Message

from kip932.api.v1 import group_coordinator_service_pb2, partition_leader_service_pb2
from kip932.api.v1.common_pb2 import StringList
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatRequest
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import Method, service_methods
from tests.attack.attacks.crowd import crowd, summary
from tests.attack.definition import Attack, Target

#: Nothing deletes groups here, so each attack uses the same ones.
GROUPS: Final = tuple(f"attackers-{number}" for number in range(20))
_AT_ONCE: Final = 32
_CALL_S: Final = 15.0


def _methods(module: Any, service: str) -> dict[str, Method[Message, Message]]:
    return service_methods(module.DESCRIPTOR.services_by_name[service])


HEARTBEAT: Final = _methods(group_coordinator_service_pb2, "GroupCoordinatorService")["ShareGroupHeartbeat"]
SHARE_FETCH: Final = _methods(partition_leader_service_pb2, "PartitionLeaderService")["ShareFetch"]

One = Callable[[GrpcTransport, Target, random.Random], Coroutine[Any, Any, int]]


def _at_once(one: One) -> Callable[[Target, random.Random, float, Path], str]:
    """Repeat one call in many tasks; count the responses by Kafka's error code, or by gRPC's status."""

    def run(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
        async def call(transport: GrpcTransport) -> str:
            return f"error {await one(transport, target, rng)}"

        return summary(asyncio.run(crowd(call, seconds, target.dial, _AT_ONCE)), 6)

    return run


async def _join(transport: GrpcTransport, target: Target, rng: random.Random) -> int:
    """Let one more member join a group and never send anything again."""
    request = ShareGroupHeartbeatRequest(
        group_id=rng.choice(GROUPS), member_id=str(uuid.UUID(int=rng.getrandbits(128))), member_epoch=0,
        subscribed_topic_names=StringList(values=[target.topic, *(f"no-such-{number}" for number in range(20))]),
    )  # fmt: skip
    answer: Any = await transport.call(target.coordinator(), HEARTBEAT, request, _CALL_S)
    return int(answer.error_code)


async def _open_session(transport: GrpcTransport, target: Target, rng: random.Random) -> int:
    """Open one more share session, for an unknown member that acquires records and never returns."""
    request = ShareFetchRequest(
        group_id=rng.choice(GROUPS), member_id=str(uuid.UUID(int=rng.getrandbits(128))), share_session_epoch=0,
        max_wait_ms=rng.choice((0, 500)), min_bytes=1, max_bytes=1 << 20, max_records=500, batch_size=500,
    )  # fmt: skip
    topic = request.topics.add(topic_id=target.topic_id)
    for partition in range(4):
        topic.partitions.add(partition_index=partition)
    answer: Any = await transport.call(target.leader(), SHARE_FETCH, request, _CALL_S)
    return int(answer.error_code)


MEMBER_ATTACKS: Final = (
    Attack("members-that-vanish", "Members that join groups and are never heard of again", _at_once(_join)),
    Attack("sessions-left-open", "Share sessions that take records and are left open", _at_once(_open_session)),
)
