"""Calls with random fields, as a faulty program would send them. Each must get a response, and none an unexpected
error."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from kip932.api.v1 import cluster_service_pb2, group_coordinator_service_pb2, partition_leader_service_pb2
from kip932.internal.v1 import share_coordinator_service_pb2
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import Method, TransportError, service_methods
from tests.attack.attacks.crowd import crowd, summary
from tests.attack.definition import Attack, Target, Who

#: Methods that change what the producers, consumers and canary depend on, or that create things that stay.
_ADMINISTERS: Final = frozenset(
    {
        "CreateTopics",
        "CreatePartitions",
        "DeleteTopics",
        "IncrementalAlterConfigs",
        "DeleteRecords",
        "CreateAcls",
        "DeleteAcls",
        "AlterUserScramCredentials",
    }
)
#: How the server, or gRPC on its behalf, describes an unhandled error.
_UNEXPECTED: Final = "nexpected "
ANSWERED: Final = "answered"
#: The result for a stream on which the peer sent nothing for a second, or which it ended without a message.
NO_ANSWER: Final = "without an answer"
_CALL_S: Final = 15.0
_ANSWERS_KEPT: Final = 5
_DEPTH_MAX: Final = 6

#: A FieldDescriptor of either of protobuf's two implementations; its type stubs do not cover both.
_Field = Any

CLIENT_SERVICES: Final = (
    cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"],
    group_coordinator_service_pb2.DESCRIPTOR.services_by_name["GroupCoordinatorService"],
    partition_leader_service_pb2.DESCRIPTOR.services_by_name["PartitionLeaderService"],
)
INTERNAL_SERVICES: Final = (share_coordinator_service_pb2.DESCRIPTOR.services_by_name["ShareCoordinatorService"],)


class Draw:
    """Generates random messages: missing fields, extreme numbers, names with all kinds of bytes, and occasionally valid
    values."""

    def __init__(self, rng: random.Random, target: Target, names: Sequence[str] = ()) -> None:
        self._rng = rng
        self._topic_id = target.topic_id
        self._names = ("", "g", target.topic, "a\x1b[2J\n\0", "€" * 300, "x" * 5_000, "../..", "unknown", *names)
        self._integers = (0, 0, 1, 1, -1, 2, 7, 100, 2**31 - 1, -(2**31))
        self._longs = (*self._integers, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))

    def message(self, kind: type[Message]) -> Message:
        """Return a random message of this type."""
        message = kind()
        self._fill(message, 0)
        return message

    def _fill(self, message: Message, depth: int) -> None:
        for field in message.DESCRIPTOR.fields:
            if self._rng.random() < 0.3 or (field.message_type is not None and depth >= _DEPTH_MAX):
                continue
            if field.message_type is not None:
                self._fill_messages(message, field, depth)
            elif field.is_repeated:
                getattr(message, field.name).extend(self._value(field) for _ in range(self._rng.choice((0, 1, 3, 40))))
            else:
                setattr(message, field.name, self._value(field))

    def _fill_messages(self, message: Message, field: _Field, depth: int) -> None:
        value: Any = getattr(message, field.name)
        if not field.is_repeated:
            value.SetInParent()
            self._fill(value, depth + 1)
            return
        for _ in range(self._rng.choice((0, 1, 2, 5))):
            self._fill(value.add(), depth + 1)

    def _value(self, field: _Field) -> Any:
        rng, kinds = self._rng, FieldDescriptor
        match field.cpp_type:
            case kinds.CPPTYPE_BOOL:
                return rng.random() < 0.5
            case kinds.CPPTYPE_INT32 | kinds.CPPTYPE_INT64:
                return rng.choice(self._integers if field.cpp_type == kinds.CPPTYPE_INT32 else self._longs)
            case kinds.CPPTYPE_DOUBLE:
                return rng.choice((0.0, -1.0, 1e-320, 2.5, 1e308, float("inf"), float("nan")))
            case kinds.CPPTYPE_ENUM:
                return rng.choice(field.enum_type.values).number
            case kinds.CPPTYPE_STRING if field.type == kinds.TYPE_BYTES:
                return rng.choice((b"", self._topic_id, self._topic_id, rng.randbytes(16), rng.randbytes(700)))
            case kinds.CPPTYPE_STRING:
                return rng.choice(self._names)
            case _:
                raise AssertionError(f"a field of a kind that no message had before: {field.full_name}")


def methods_of(services: Sequence[Any]) -> list[Method[Message, Message]]:
    """Return the methods of some services that do no harm, whatever their arguments."""
    found = [method for service in services for method in service_methods(service).values()]
    return [method for method in found if method.name not in _ADMINISTERS]


def _random_calls(
    services: Sequence[Any], addresses: Callable[[Target], Mapping[str, str]], served: bool = True
) -> Callable[[Target, random.Random, float, Path], str]:
    def run(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
        methods, listeners = methods_of(services), sorted(addresses(target).values())
        counts, answers = asyncio.run(_call(target, rng, seconds, methods, listeners))
        assert served or not answers, f"RPCs for nodes served a client: {counts}, such as {answers[0]}"
        return summary(counts)

    return run


async def _call(
    target: Target, rng: random.Random, seconds: float, methods: list[Method[Message, Message]], addresses: list[str]
) -> tuple[Counter[str], list[str]]:
    """Make calls; return the counts of their outcomes and the nodes' first few responses."""
    draw, unexpected, answers = Draw(rng, target), list[str](), list[str]()

    async def one(transport: GrpcTransport) -> str:
        method, address = rng.choice(methods), rng.choice(addresses)
        request = draw.message(method.request_type)
        try:
            if method.streaming:
                answer = await _stream(transport, address, method, request)
            else:
                answer = await transport.call(address, method, request, _CALL_S)
        except TransportError as error:
            if _UNEXPECTED in str(error):
                unexpected.append(f"{method.name}: {error} to {str(request)[:300]!r}")
            raise
        if answer is None:
            return NO_ANSWER
        if len(answers) < _ANSWERS_KEPT:
            answers.append(f"{method.name} at {address}: {str(answer)[:300]!r} to {str(request)[:300]!r}")
        return ANSWERED

    counts = await crowd(one, seconds, target.dial)
    assert not unexpected, f"{len(unexpected)} calls met something unexpected, such as {unexpected[0]}"
    return counts, answers


async def _stream(
    transport: GrpcTransport, address: str, method: Method[Message, Message], request: Message
) -> Message | None:
    """Send one message on a separate stream; return the response, None if none came within a second."""
    stream = await transport.open_stream(address, method)
    try:
        await stream.write(request)
        async with asyncio.timeout(1):
            return await stream.read()
    except TimeoutError:
        return None
    finally:
        await stream.close()


CALL_ATTACKS: Final = (
    Attack(
        "random-calls",
        "Calls with fields drawn by chance",
        _random_calls(CLIENT_SERVICES, lambda target: target.clients),
    ),
    Attack(
        "random-internal-calls",
        "The same to the listeners for other nodes",
        _random_calls(INTERNAL_SERVICES, lambda target: target.internal),
        Who.INSIDER,
    ),
    Attack(
        "internal-from-outside",
        "Calls between nodes, sent to the listeners for clients",
        _random_calls(INTERNAL_SERVICES, lambda target: target.clients, served=False),
        Who.INSIDER,
    ),
)
