"""Requests full of empty entries, which take two bytes each, and far more once they are parsed (CM-181)."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kip932.rpc.transport import service_methods
from tests.attack.attacks.calls import CLIENT_SERVICES, INTERNAL_SERVICES
from tests.attack.definition import Attack, Target, Who
from tests.support.dial import PLAIN, Dial

MIB: Final = 1024 * 1024
_AT_ONCE: Final = 10
_CALL_S: Final = 60.0
_DEPTH_MAX: Final = 6
_LENGTH: Final = 2
#: The allowed statuses: refused, served if the list is short enough, or to be retried.
ANSWERS: Final = frozenset({"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "UNAVAILABLE"})
_LIMIT_BYTES: Final = 8 * MIB - 64
_SMALL_BYTES: Final = MIB - 64
#: The RPCs whose requests may have more than 1 MiB (CM-91).
_LARGE: Final = frozenset({"Produce", "ProduceStream", "WriteShareGroupState", "StateStream"})
_CHANNEL: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))


def requests(services: Sequence[Any]) -> Iterator[tuple[str, bool, bytes]]:
    """Yield the path, whether it is a stream, and a request, for every RPC and each of its lists, filled with empty
    entries."""
    for service in services:
        for name, method in service_methods(service).items():
            size = _LIMIT_BYTES if name in _LARGE else _SMALL_BYTES
            for path in lists(cast(Descriptor, method.request_type.DESCRIPTOR)):
                yield method.path, method.streaming, filled(path, size)


def lists(message: Descriptor, outer: tuple[FieldDescriptor, ...] = ()) -> Iterator[tuple[FieldDescriptor, ...]]:
    """Yield the path from a message to every list of messages, texts or byte strings in it."""
    for field in message.fields:
        inner = field.message_type
        if field.is_repeated and (
            inner is not None or field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
        ):
            yield (*outer, field)
        if inner is not None and len(outer) < _DEPTH_MAX and inner not in [each.containing_type for each in outer]:
            yield from lists(inner, (*outer, field))


def filled(path: Sequence[FieldDescriptor], size: int) -> bytes:
    """Encode one entry for each list on the path, and the last list full of empty entries: about `size` bytes in
    total."""
    *outer, last = path
    entry = _tag(last) + b"\0"
    body = entry * (size // len(entry))
    for field in reversed(outer):
        body = _tag(field) + _varint(len(body)) + body
    return body


def call(address: str, path: str, streaming: bool, body: bytes, dial: Dial = PLAIN) -> str:
    """Send one request on a separate connection; return the status of the response."""
    with dial.channel(address, _CHANNEL) as channel:
        try:
            if streaming:
                duplex: Any = channel.stream_stream(path)
                for _ in duplex(iter([body]), timeout=_CALL_S):
                    break
            else:
                unary: Any = channel.unary_unary(path)
                unary(body, timeout=_CALL_S)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def _parsed(
    services: Sequence[Any], of: Callable[[Target], str]
) -> Callable[[Target, random.Random, float, Path], str]:
    """Send a request for every list of every RPC in turn, ten at a time."""

    def run(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
        deadline, address, all_of_them = time.monotonic() + seconds, of(target), list(requests(services))
        rng.shuffle(all_of_them)
        answers: Counter[str] = Counter()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while time.monotonic() < deadline:
                path, streaming, body = all_of_them[sum(answers.values()) // _AT_ONCE % len(all_of_them)]
                answers.update(pool.map(lambda _: call(address, path, streaming, body, target.dial), range(_AT_ONCE)))  # noqa: B023
        assert answers.keys() <= ANSWERS, f"requests of empty entries returned {dict(answers)}"
        return ", ".join(f"{count} {status}" for status, count in sorted(answers.items()))

    return run


def _internal(target: Target) -> str:
    return next(iter(sorted(target.internal.values())), target.leader())


def _tag(field: FieldDescriptor) -> bytes:
    return _varint(field.number << 3 | _LENGTH)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


PARSED_ATTACKS: Final = (
    Attack(
        "parsed-requests",
        "Requests of millions of empty entries, which are much larger once they are parsed",
        _parsed(CLIENT_SERVICES, Target.leader),
    ),
    Attack(
        "parsed-state",
        "The same, to the share coordinator",
        _parsed(INTERNAL_SERVICES, _internal),
        Who.INSIDER,
    ),
)
