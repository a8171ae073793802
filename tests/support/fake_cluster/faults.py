"""Faults that a test plans for the fake cluster. They imitate no behaviour of services.

`errors["produce"].append(19)` makes the next Produce fail with 19; the keys are those of `take_error`. Five keys name
actions, whatever the number: "produce_stream" ends a stream without a response, "produce_lost" appends and loses the
response, "end_txn_lost" decides and loses the response, "share_stream" refuses a new stream, "share_stream_lost" ends a
stream after a request was processed, without a response.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import Any, Final

from google.protobuf.message import Message

from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.ids import TopicIdPartition
from shard_runtime.rpc.binding import ServerStream

#: THROTTLING_QUOTA_EXCEEDED
NO_ROOM: Final = 89
TOPIC_AUTHORIZATION_FAILED: Final = 29
GROUP_AUTHORIZATION_FAILED: Final = 30
CLUSTER_AUTHORIZATION_FAILED: Final = 31


class Faults:
    def __init__(self) -> None:
        self.errors: dict[str, deque[int]] = defaultdict(deque)
        #: The event that requests on produce streams wait for, if any.
        self.hold_produce: asyncio.Event | None = None
        #: The throttle time in responses with THROTTLING_QUOTA_EXCEEDED.
        self.throttle_ms = 0
        #: Partitions that answer a Produce with this error.
        self.unloadable: dict[TopicIdPartition, int] = {}
        #: Partitions whose share state no coordinator returns, with the text of COORDINATOR_NOT_AVAILABLE.
        self.stateless: dict[TopicIdPartition, str] = {}
        #: Shards of the group log whose groups no node lists, with the error. The test decides which groups are in
        #: them.
        self.unserved: dict[int, int] = {}
        #: Permissions that no client has, such as "READ on topic 't'" or "READ on group 'g'". The errors are those of a
        #: Kafka broker with an authorizer, whose checks come before all others. Here no permission implies another.
        self.denied: set[str] = set()
        self.stream_tasks: dict[int, set[asyncio.Task[Any]]] = defaultdict(set)
        #: The open streams of each node, with the message that asks its client to move.
        self.open_streams: dict[int, dict[ServerStream, Message]] = defaultdict(dict)
        #: Nodes that ask each stream's client to move as soon as it is opened.
        self.old_connections: set[int] = set()

    def take_error(self, what: str) -> ErrorCode.ValueType:
        """Return the next planned error of a kind; 0 if none is planned."""
        return ErrorCode.ValueType(self.errors[what].popleft() if self.errors[what] else 0)

    def denial(self, operation: str, kind: str, name: str) -> str:
        """Return the error message for a client that lacks this permission; "" if it has it."""
        right = f"{operation} on {kind} {name!r}"
        return f"User:alice has no right to {right}." if right in self.denied else ""

    def refuse(self, response: Any, error: int, text: str = "") -> None:
        """Set this error in a response, with the throttle time for NO_ROOM."""
        response.error_code = error
        if text:
            response.error_message = text
        response.throttle_time_ms = self.throttle_ms if error == NO_ROOM else 0

    async def opened(self, node: int, stream: ServerStream, move: Message) -> None:
        """Note that a stream is open; `move` asks its client to move."""
        self.open_streams[node][stream] = move
        if node in self.old_connections:
            await stream.write(move)

    async def ask_to_move(self, node: int) -> None:
        """Ask the clients of a node's streams to move, as before the end of an old connection."""
        for stream, move in list(self.open_streams[node].items()):
            await stream.write(move)

    def drop_streams(self, node: int) -> None:
        """Break the share streams of a node."""
        for task in list(self.stream_tasks[node]):
            task.cancel()
