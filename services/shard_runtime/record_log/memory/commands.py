"""Commands of the in-memory server: what each does to the data and answers. Whether it may run is not asked here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from shard_runtime.record_log.memory.data import Stream, StreamKey
from shard_runtime.record_log.memory.functions import FUNCTIONS
from shard_runtime.record_log.redis.connection import Command, ErrorReply

if TYPE_CHECKING:
    from shard_runtime.record_log.memory.server import MemoryServer, Session

_MAX: Final = (2**63 - 1, 2**63 - 1)
_ALL: Final = 2**63 - 1


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


def _range(server: MemoryServer, command: Sequence[str | bytes | int]) -> Any:
    newest = str(command[0]) == "XREVRANGE"
    first, last = _bound(command[3 if newest else 2], True), _bound(command[2 if newest else 3], False)
    count = int(command[5]) if len(command) > 5 else _ALL
    stream = server.data.streams.get(_key(command[1]), Stream())
    found = stream.between(first, last)
    picked = list(reversed(found[-count:])) if newest else found[:count]
    return [[_entry_id(stream.ids[i]), list(stream.fields[i])] for i in picked]


def _xadd(server: MemoryServer, command: Command) -> Any:
    key, at, make = _key(command[1]), 2, True
    if command[at] == "NOMKSTREAM":
        at, make = 3, False
    stream = server.data.streams.get(key)
    if stream is None and not make:
        return None
    entry_id = _parse_id(_key(command[at]))
    if entry_id <= (stream.last if stream is not None else (0, 0)):
        return ErrorReply("ERR", "The ID specified in XADD is equal or smaller than the target stream top item")
    server.effect("xadd", key, (entry_id, tuple(_bytes(arg) for arg in command[at + 1 :])))
    return _entry_id(entry_id)


def _xtrim(server: MemoryServer, command: Command) -> Any:
    key, limit = _key(command[1]), _parse_id(_key(command[3]))
    stream = server.data.streams.get(key, Stream())
    count = len(stream.between((0, 0), limit)) - (1 if limit in stream.ids else 0)
    server.effect("xtrim", key, limit)
    return count


def _set(server: MemoryServer, command: Command) -> Any:
    key = _key(command[1])
    if "NX" in command[3:] and server.data.exists(key):
        return None
    server.effect("set", key, _bytes(command[2]))
    return b"OK"


def _incr(server: MemoryServer, command: Command) -> Any:
    key = _key(command[1])
    value = int(server.data.strings.get(key, b"0")) + 1
    server.effect("set", key, b"%d" % value)
    return value


def _del(server: MemoryServer, command: Command) -> Any:
    there = [key for key in map(_key, command[1:]) if server.data.exists(key)]
    for key in there:
        server.effect("del", key, None)
    return len(there)


def _hset(server: MemoryServer, command: Command) -> Any:
    values = [_bytes(arg) for arg in command[2:]]
    server.effect("hset", _key(command[1]), dict(zip(values[::2], values[1::2], strict=True)))
    return len(values) // 2


def _hdel(server: MemoryServer, command: Command) -> Any:
    there = server.data.hashes.get(_key(command[1]), {})
    names = [name for name in map(_bytes, command[2:]) if name in there]
    for name in names:
        server.effect("hdel", _key(command[1]), name)
    return len(names)


def _hmget(server: MemoryServer, command: Sequence[str | bytes | int]) -> Any:
    value = server.data.hashes.get(_key(command[1]), {})
    return [value.get(_bytes(name)) for name in command[2:]]


def _hgetall(server: MemoryServer, command: Sequence[str | bytes | int]) -> Any:
    value = server.data.hashes.get(_key(command[1]), {})
    return [word for pair in value.items() for word in pair]


def _hscan(server: MemoryServer, command: Sequence[str | bytes | int]) -> Any:
    key = _key(command[1])
    if key in server.data.strings or key in server.data.streams:
        return ErrorReply("WRONGTYPE", "Operation against a key holding the wrong kind of value")
    first, count = int(command[2]), int(command[4])
    words = _hgetall(server, command)[2 * first : 2 * (first + count)]
    return [b"%d" % (first + count) if len(words) == 2 * count else b"0", words]


def _time(server: MemoryServer, _command: Sequence[str | bytes | int]) -> Any:
    seconds, millis = divmod(server.now_ms(), 1_000)
    return [b"%d" % seconds, b"%d" % (millis * 1_000)]


def _info(server: MemoryServer, _command: Sequence[str | bytes | int]) -> Any:
    replicas = len(server.followers)
    return (
        f"# Replication\r\nrole:{server.role}\r\nconnected_slaves:{replicas}\r\nmaster_replid:{server.history}\r\n"
    ).encode()


def _role(server: MemoryServer, _command: Sequence[str | bytes | int]) -> Any:
    return [server.role.encode(), server.offset, []]


def _get(server: MemoryServer, command: Sequence[str | bytes | int]) -> Any:
    return server.data.strings.get(_key(command[1]))


def _ping(_server: MemoryServer, _command: Sequence[str | bytes | int]) -> Any:
    return b"PONG"


def _script(server: MemoryServer, command: Command) -> Any:
    digest = hashlib.sha1(_bytes(command[2]), usedforsecurity=False).hexdigest()
    server.loaded.add(digest)
    return digest.encode()


def _evalsha(server: MemoryServer, command: Command) -> Any:
    count = int(command[2])
    keys = [_key(arg) for arg in command[3 : 3 + count]]
    return FUNCTIONS[str(command[1])](server, keys, [_bytes(arg) for arg in command[3 + count :]])


def _publish(server: MemoryServer, _session: Session, command: Command) -> Any:
    return server.publish(_key(command[1]), _bytes(command[2]))


def _subscribe(_server: MemoryServer, session: Session, command: Command) -> Any:
    session.channels.add(_key(command[1]))
    return [b"subscribe", _bytes(command[1]), len(session.channels)]


READS: Final[dict[str, Callable[[MemoryServer, Sequence[str | bytes | int]], Any]]] = {
    "XRANGE": _range,
    "XREVRANGE": _range,
    "HMGET": _hmget,
    "HGETALL": _hgetall,
    "HSCAN": _hscan,
    "TIME": _time,
    "INFO": _info,
    "ROLE": _role,
    "GET": _get,
    "PING": _ping,
}
COMMANDS: Final[dict[str, Callable[[MemoryServer, Command], Any]]] = {
    "XADD": _xadd,
    "XTRIM": _xtrim,
    "SET": _set,
    "INCR": _incr,
    "DEL": _del,
    "HSET": _hset,
    "HDEL": _hdel,
    "SCRIPT": _script,
    "EVALSHA": _evalsha,
}
SESSION: Final[dict[str, Callable[[MemoryServer, Session, Command], Any]]] = {
    "PUBLISH": _publish,
    "SUBSCRIBE": _subscribe,
}
