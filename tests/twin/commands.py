"""The in-memory server's commands: their effects on the data, and their replies. `server` decides whether one may
run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

from shard_runtime.record_log.redis.connection import Command, ErrorReply
from tests.twin.data import Stream, StreamKey
from tests.twin.functions import FUNCTIONS, View

_MAX: Final = (2**63 - 1, 2**63 - 1)
_ALL: Final = 2**63 - 1
_WRONG_TYPE: Final = ErrorReply("WRONGTYPE", "Operation against a key holding the wrong kind of value")


class Node(View, Protocol):
    """The node as a command sees it."""

    role: str
    offset: int
    loaded: set[str]
    """Digests of the loaded functions."""
    config: dict[str, str]
    """The settings that CONFIG GET reads and CONFIG SET changes."""

    @property
    def followers(self) -> Collection[object]:
        """Its replicas."""
        ...

    def publish(self, channel: str, message: bytes) -> int:
        """Send a message to all subscribers of a channel; returns their number."""
        ...


class Subscriber(Protocol):
    """The connection as a command sees it."""

    channels: set[str]


def _bytes(arg: str | bytes | int) -> bytes:
    return arg if isinstance(arg, bytes) else str(arg).encode()


def _key(arg: str | bytes | int) -> str:
    return arg.decode() if isinstance(arg, bytes) else str(arg)


def _parse_id(text: str) -> StreamKey:
    ms, _, seq = text.partition("-")
    return int(ms), int(seq or 0)


def _bound(arg: str | bytes | int, lower: bool) -> StreamKey:
    text = _key(arg)
    if text in ("-", "+"):
        return (0, 0) if text == "-" else _MAX
    if not text.startswith("("):
        return _parse_id(text)
    ms, seq = _parse_id(text[1:])
    if lower:
        return ms, seq + 1
    return (ms, seq - 1) if seq else (ms - 1, _MAX[1])


def _entry_id(entry_id: StreamKey) -> bytes:
    return b"%d-%d" % entry_id


def _range(node: Node, command: Sequence[str | bytes | int]) -> Any:
    newest = str(command[0]) == "XREVRANGE"
    first, last = _bound(command[3 if newest else 2], True), _bound(command[2 if newest else 3], False)
    count = int(command[5]) if len(command) > 5 else _ALL
    stream = node.data.streams.get(_key(command[1]), Stream())
    found = stream.between(first, last)
    picked = list(reversed(found[-count:])) if newest else found[:count]
    return [[_entry_id(stream.ids[i]), list(stream.fields[i])] for i in picked]


def _xadd(node: Node, command: Command) -> Any:
    key, at, make = _key(command[1]), 2, True
    if command[at] == "NOMKSTREAM":
        at, make = 3, False
    stream = node.data.streams.get(key)
    if stream is None and not make:
        return None
    entry_id = _parse_id(_key(command[at]))
    if entry_id <= (stream.last if stream is not None else (0, 0)):
        return ErrorReply("ERR", "The ID specified in XADD is equal or smaller than the target stream top item")
    node.effect("xadd", key, (entry_id, tuple(_bytes(arg) for arg in command[at + 1 :])))
    return _entry_id(entry_id)


def _xtrim(node: Node, command: Command) -> Any:
    key, limit = _key(command[1]), _parse_id(_key(command[3]))
    stream = node.data.streams.get(key, Stream())
    count = len(stream.between((0, 0), limit)) - (1 if limit in stream.ids else 0)
    node.effect("xtrim", key, limit)
    return count


def _set(node: Node, command: Command) -> Any:
    key = _key(command[1])
    if "NX" in command[3:] and node.data.exists(key):
        return None
    node.effect("set", key, _bytes(command[2]))
    return b"OK"


def _incr(node: Node, command: Command) -> Any:
    key = _key(command[1])
    value = int(node.data.strings.get(key, b"0")) + 1
    node.effect("set", key, b"%d" % value)
    return value


def _del(node: Node, command: Command) -> Any:
    there = [key for key in map(_key, command[1:]) if node.data.exists(key)]
    for key in there:
        node.effect("del", key, None)
    return len(there)


def _hset(node: Node, command: Command) -> Any:
    values = [_bytes(arg) for arg in command[2:]]
    node.effect("hset", _key(command[1]), dict(zip(values[::2], values[1::2], strict=True)))
    return len(values) // 2


def _hsetnx(node: Node, command: Command) -> Any:
    key, name = _key(command[1]), _bytes(command[2])
    if _type(node, command) not in {b"hash", b"none"}:
        return _WRONG_TYPE
    if name in node.data.hashes.get(key, {}):
        return 0
    node.effect("hset", key, {name: _bytes(command[3])})
    return 1


def _hdel(node: Node, command: Command) -> Any:
    there = node.data.hashes.get(_key(command[1]), {})
    names = [name for name in map(_bytes, command[2:]) if name in there]
    for name in names:
        node.effect("hdel", _key(command[1]), name)
    return len(names)


def _hmget(node: Node, command: Sequence[str | bytes | int]) -> Any:
    if _type(node, command) not in {b"hash", b"none"}:
        return _WRONG_TYPE
    value = node.data.hashes.get(_key(command[1]), {})
    return [value.get(_bytes(name)) for name in command[2:]]


def _hgetall(node: Node, command: Sequence[str | bytes | int]) -> Any:
    value = node.data.hashes.get(_key(command[1]), {})
    return [word for pair in value.items() for word in pair]


def _hscan(node: Node, command: Sequence[str | bytes | int]) -> Any:
    if _type(node, command) not in {b"hash", b"none"}:
        return _WRONG_TYPE
    first, count = int(command[2]), int(command[4])
    words = _hgetall(node, command)[2 * first : 2 * (first + count)]
    return [b"%d" % (first + count) if len(words) == 2 * count else b"0", words]


def _time(node: Node, _command: Sequence[str | bytes | int]) -> Any:
    seconds, millis = divmod(node.now_ms(), 1_000)
    return [b"%d" % seconds, b"%d" % (millis * 1_000)]


#: What the twin says that it uses: it counts no bytes.
_USED_BYTES: Final = 1 << 20


def _info(node: Node, _command: Sequence[str | bytes | int]) -> Any:
    replicas = len(node.followers)
    return (
        f"# Replication\r\nrole:{node.role}\r\nconnected_slaves:{replicas}\r\nmaster_replid:{node.history}\r\n"
        f"# Memory\r\nused_memory:{_USED_BYTES}\r\nmaxmemory:{node.config.get('maxmemory', '0')}\r\n"
    ).encode()


def _role(node: Node, _command: Sequence[str | bytes | int]) -> Any:
    return [node.role.encode(), node.offset, []]


def _type(node: Node, command: Sequence[str | bytes | int]) -> Any:
    key = _key(command[1])
    if key in node.data.strings:
        return b"string"
    return b"hash" if key in node.data.hashes else b"stream" if key in node.data.streams else b"none"


def _scan(node: Node, _command: Sequence[str | bytes | int]) -> Any:
    data = node.data
    return [b"0", [key.encode() for key in (*data.strings, *data.hashes, *data.streams)]]


def _get(node: Node, command: Sequence[str | bytes | int]) -> Any:
    if _type(node, command) not in {b"string", b"none"}:
        return _WRONG_TYPE
    return node.data.strings.get(_key(command[1]))


def _ping(_node: Node, _command: Sequence[str | bytes | int]) -> Any:
    return b"PONG"


def _config(node: Node, command: Command) -> Any:
    name = _key(command[2])
    if str(command[1]) == "SET":
        node.config[name] = _key(command[3])
        return b"OK"
    return [name.encode(), node.config[name].encode()] if name in node.config else []


def _script(node: Node, command: Command) -> Any:
    digest = hashlib.sha1(_bytes(command[2]), usedforsecurity=False).hexdigest()
    node.loaded.add(digest)
    return digest.encode()


def _evalsha(node: Node, command: Command) -> Any:
    count = int(command[2])
    keys = [_key(arg) for arg in command[3 : 3 + count]]
    return FUNCTIONS[str(command[1])](node, keys, [_bytes(arg) for arg in command[3 + count :]])


def _publish(node: Node, _session: Subscriber, command: Command) -> Any:
    return node.publish(_key(command[1]), _bytes(command[2]))


def _subscribe(_node: Node, session: Subscriber, command: Command) -> Any:
    session.channels.add(_key(command[1]))
    return [b"subscribe", _bytes(command[1]), len(session.channels)]


READS: Final[dict[str, Callable[[Node, Sequence[str | bytes | int]], Any]]] = {
    "XRANGE": _range,
    "XREVRANGE": _range,
    "HMGET": _hmget,
    "HGETALL": _hgetall,
    "HSCAN": _hscan,
    "TIME": _time,
    "INFO": _info,
    "ROLE": _role,
    "GET": _get,
    "TYPE": _type,
    "SCAN": _scan,
    "PING": _ping,
}
COMMANDS: Final[dict[str, Callable[[Node, Command], Any]]] = {
    "XADD": _xadd,
    "XTRIM": _xtrim,
    "SET": _set,
    "INCR": _incr,
    "DEL": _del,
    "HSET": _hset,
    "HSETNX": _hsetnx,
    "HDEL": _hdel,
    "CONFIG": _config,
    "SCRIPT": _script,
    "EVALSHA": _evalsha,
}
SESSION: Final[dict[str, Callable[[Node, Subscriber, Command], Any]]] = {
    "PUBLISH": _publish,
    "SUBSCRIBE": _subscribe,
}
