"""The server-side functions of `redis/scripts` in Python, with the same arguments, replies and order of rules.

The contract suite tests that both behave the same. A function reads `view.data` and changes it only with
`view.effect`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kip932.entry_checksum import placed as placed_checksum
from shard_runtime.record_log.cluster_store import NO_ENTRY, metadata_digest
from shard_runtime.record_log.redis import scripts
from tests.twin.data import Data, StreamKey

_FIELDS: Final = (
    b"node_id",
    b"incarnation",
    b"address",
    b"epoch",
    b"expires",
    b"released",
    b"lease_history",
    b"tail_history",
    b"replay_from",
    b"nonce",
    b"verdict",
)
_EPOCH_ZERO_S: Final = 1_767_225_600
_EPOCH_MAX: Final = 2**31 - 1


class View(Protocol):
    """The node as a function sees it."""

    data: Data
    history: str

    def now_ms(self) -> int:
        """Return the time by the node's own clock."""
        ...

    def effect(self, what: str, key: str, argument: object) -> None:
        """Apply a change to the data."""
        ...

    def command(self, *args: str | bytes) -> Any:
        """Run a read command."""
        ...


def _text(number: int) -> bytes:
    return str(number).encode()


def _id(data: bytes) -> StreamKey:
    ms, _, seq = data.partition(b"-")
    return int(ms), int(seq)


def claim_v2(view: View, keys: Sequence[str], argv: Sequence[bytes]) -> Any:  # noqa: PLR0911  (as the Lua answers)
    """See claim_v2.lua."""
    inc, node_id, address, nonce, lease_text, floor, seen = argv[:7]
    waited, lossless, durable, cont_epoch = (argv[7] == b"1", argv[8] == b"1", argv[9] == b"1", int(argv[10]))
    now, lease, history = view.now_ms(), int(lease_text), view.history.encode()

    def answer(status: bytes, *more: bytes) -> list[bytes]:
        return [status, history, _text(now), *more]

    if seen != history:
        return answer(b"CHANGED")
    owner = view.data.hashes.get(keys[0])
    o = dict(owner) if owner else {}
    released, expires, epoch = o.get(b"released") == b"1", int(o.get(b"expires", b"0")), int(o.get(b"epoch", b"0"))
    if o and o[b"nonce"] == nonce:
        if released:
            return answer(b"REFUSED", b"released")
        view.effect("hset", keys[0], {b"expires": _text(now + lease)})
        return answer(b"OK", o[b"epoch"], o[b"verdict"], o[b"replay_from"])
    if o and expires > now + lease:
        expires = now + lease
        o[b"expires"] = _text(expires)
        view.effect("hset", keys[0], {b"expires": o[b"expires"]})
    mine = bool(o) and o[b"incarnation"] == inc
    cont = mine and not released and epoch == cont_epoch
    record = [o.get(name, b"") for name in _FIELDS]
    if o and not mine and not released and expires > now and o[b"incarnation"] not in argv[14:]:
        return answer(b"HELD", _text(expires - now), *record)
    if not lossless and not cont and o.get(b"lease_history") != history and not waited:
        return answer(b"WAIT_HISTORY")
    tips = [view.data.streams[key].last[0] + 1 for key in keys[1:] if key in view.data.streams]
    e = max(epoch + 1, now // 1000 - _EPOCH_ZERO_S, int(floor), *tips)
    if e > _EPOCH_MAX:
        return answer(b"REFUSED", b"epochs are exhausted")
    whole = o.get(b"tail_history") in argv[12].split(b",") if argv[12] else False
    lossy = bool(o) and o[b"tail_history"] != history and not (whole or lossless or (released and durable))
    for key, so_far in zip(keys[1:], argv[13].split(b","), strict=True):
        placed = placed_checksum(int(so_far), (e, 0))
        view.effect("xadd", key, ((e, 0), (b"t", b"C", b"r", argv[11], b"c", placed)))
    verdict, replay_from = (b"1" if lossy else b"0"), o.get(b"replay_from", b"0-0")
    values = (node_id, inc, address, _text(e), _text(now + lease), b"0", history,
              o[b"tail_history"] if lossy else history, replay_from, nonce, verdict)  # fmt: skip
    view.effect("hset", keys[0], dict(zip(_FIELDS, values, strict=True)))
    return answer(b"OK", _text(e), verdict, replay_from, *(record if o else ()))


def _owned(view: View, key: str, inc: bytes, epoch: bytes) -> bool:
    o = view.data.hashes.get(key, {})
    return o.get(b"incarnation") == inc and o.get(b"epoch") == epoch and o.get(b"released") == b"0"


def renew_v1(view: View, keys: Sequence[str], argv: Sequence[bytes]) -> Any:
    """See renew_v1.lua."""
    now, history = view.now_ms(), view.history.encode()
    answer = [history, _text(now)]
    for i, key in enumerate(keys):
        inc, epoch, lease, tail_ok = argv[4 * i : 4 * i + 4]
        if not _owned(view, key, inc, epoch):
            answer.append(b"0")
            continue
        view.effect("hset", key, {b"expires": _text(now + int(lease))})
        if tail_ok == history:
            view.effect("hset", key, {b"tail_history": history})
        answer.append(b"1")
    return answer


def release_v1(view: View, keys: Sequence[str], argv: Sequence[bytes]) -> Any:
    """See release_v1.lua."""
    if not _owned(view, keys[0], argv[0], argv[1]):
        return b"0"
    view.effect("hset", keys[0], {b"released": b"1"})
    return b"1"


def replay_from_v1(view: View, keys: Sequence[str], argv: Sequence[bytes]) -> Any:
    """See replay_from_v1.lua."""
    if not _owned(view, keys[0], argv[0], argv[1]):
        return b"0"
    had = view.data.hashes[keys[0]].get(b"replay_from", b"0-0")
    if argv[2]:
        view.effect("hset", keys[0], {b"replay_from": argv[2] if _id(argv[2]) > _id(had) else had})
    else:
        view.effect("hset", keys[0], {b"released": b"0"})
    return b"1"


def stream_tip_v1(view: View, keys: Sequence[str], _argv: Sequence[bytes]) -> Any:
    """See stream_tip_v1.lua."""
    stream = view.data.streams.get(keys[0])
    if stream is None:
        return None
    first = stream.ids[0] if stream.ids else (0, 0)
    return ["{}-{}".format(*stream.last).encode(), stream.added, len(stream.ids), "{}-{}".format(*first).encode()]


def log_index_v3(view: View, keys: Sequence[str], argv: Sequence[bytes]) -> Any:
    """See log_index_v3.lua."""
    name = "XREVRANGE" if argv[3] == b"newest" else "XRANGE"
    left, budget = int(argv[2]), int(argv[4])
    answer: list[bytes | int | None] = [0]
    for entry_id, fields in view.command(name, keys[0], argv[0], argv[1], "COUNT", argv[2]):
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        answer += (entry_id, named.get(b"t", b""), named.get(b"r", b""), named.get(b"c"))
        left, budget = left - 1, budget - sum(map(len, fields[1::2]))
        if budget <= 0:
            answer[0] = int(left > 0)
            break
    return answer


def node_register_v1(view: View, keys: Sequence[str], argv: Sequence[bytes]) -> Any:
    """See node_register_v1.lua."""
    now, ttl = view.now_ms(), int(argv[2])
    node_id = view.data.hashes.get(keys[1], {}).get(argv[0])
    if node_id is None:
        node_id = _text(int(view.data.strings.get(keys[2], b"0")) + 1)
        view.effect("set", keys[2], node_id)
        view.effect("hset", keys[1], {argv[0]: node_id})
    else:
        entry = view.data.hashes.get(keys[0], {}).get(node_id)
        if entry is not None:
            expires, inc, _ = entry.split(b" ", 2)
            remaining = min(int(expires) - now, ttl)
            if remaining > 0 and inc != argv[1] and inc not in argv[4:]:
                return [b"TAKEN", node_id, inc, _text(remaining)]
    view.effect("hset", keys[0], {node_id: b"%d %s %s" % (now + ttl, argv[1], argv[3])})
    return [b"OK", node_id]


def node_renew_v2(view: View, keys: Sequence[str], argv: Sequence[bytes]) -> Any:
    """See node_renew_v2.lua."""
    now, ttl = view.now_ms(), int(argv[2])
    nodes = view.data.hashes.get(keys[0], {})
    expires, inc = b"0", argv[1]
    if argv[0] in nodes:
        expires, inc, _ = nodes[argv[0]].split(b" ", 2)
    if argv[4] == b"remove":
        if argv[0] in nodes and inc == argv[1]:
            view.effect("hdel", keys[0], argv[0])
        return [b"OK"]
    if inc != argv[1] and min(int(expires), now + ttl) > now:
        return [b"TAKEN", inc]
    view.effect("hset", keys[0], {argv[0]: b"%d %s %s" % (now + ttl, argv[1], argv[3])})
    answer: list[bytes] = []
    left: list[int] = []
    for node_id, entry in list(view.data.hashes[keys[0]].items()):
        till, _, record = entry.split(b" ", 2)
        if int(till) > now:
            answer += (node_id, record)
            left += [min(int(till) - now, ttl)] if node_id != argv[0] else []
        elif int(till) < now - 10 * ttl:
            view.effect("hdel", keys[0], node_id)
    return [b"OK", min(left, default=0), *answer]


def metadata_append_v3(view: View, keys: Sequence[str], argv: Sequence[bytes]) -> Any:
    """See metadata_append_v3.lua."""
    newest = view.command("XREVRANGE", keys[0], "+", "-", "COUNT", "1")
    tip, version = _id(newest[0][0])[1] if newest else 0, int(argv[0])
    digest = metadata_digest(newest[0][1][3]) if newest else NO_ENTRY
    if tip != version - 1 or digest.encode() != argv[1]:
        return 0
    view.effect("xadd", keys[0], ((1, version), (b"t", argv[2], b"r", argv[3], b"c", argv[4])))
    return 1


def _transaction(view: View, key: str, now: int) -> tuple[bytes | None, bytes]:
    """Return the record that is in force and its checksum; (None, b"") if there is none."""
    fields = view.data.hashes.get(key, {})
    expires = int(fields.get(b"x", b"0"))
    if b"r" not in fields or 0 < expires <= now:
        return None, b""
    return fields[b"r"], fields[b"c"]


def transaction_change_v1(view: View, keys: Sequence[str], argv: Sequence[bytes]) -> Any:
    """See transaction_change_v1.lua."""
    now = view.now_ms()
    record, proof = _transaction(view, keys[0], now)
    if record == argv[1]:
        view.effect("hset", keys[0], {b"t": _text(now)})
        return [1, now, record]
    digest = "" if record is None else hashlib.sha1(record, usedforsecurity=False).hexdigest()
    if digest.encode() != argv[0]:
        return [0, now] if record is None else [0, now, record, proof]
    expires = int(argv[3]) and now + int(argv[3])
    view.effect("del", keys[0], None)
    view.effect("hset", keys[0], {b"r": argv[1], b"c": argv[2], b"x": _text(expires)})
    return [1, now, argv[1]]


def transaction_look_v1(view: View, keys: Sequence[str], _argv: Sequence[bytes]) -> Any:
    """See transaction_look_v1.lua."""
    now = view.now_ms()
    record, proof = _transaction(view, keys[0], now)
    view.effect("hset", keys[0], {b"t": _text(now)})
    if record is not None:
        return [now, record, proof]
    view.effect("del", keys[0], None)
    return [now]


Function = Callable[[View, Sequence[str], Sequence[bytes]], Any]
_WRITES_WHEN_FULL: Final = {scripts.RENEW, scripts.RELEASE, scripts.REPLAY_FROM, scripts.NODE_RENEW}
READ_ONLY: Final = frozenset({scripts.STREAM_TIP.digest, scripts.LOG_INDEX.digest})
ALLOW_OOM: Final = frozenset(script.digest for script in _WRITES_WHEN_FULL)
FUNCTIONS: Final[dict[str, Function]] = {
    scripts.CLAIM.digest: claim_v2,
    scripts.RENEW.digest: renew_v1,
    scripts.RELEASE.digest: release_v1,
    scripts.REPLAY_FROM.digest: replay_from_v1,
    scripts.STREAM_TIP.digest: stream_tip_v1,
    scripts.LOG_INDEX.digest: log_index_v3,
    scripts.NODE_REGISTER.digest: node_register_v1,
    scripts.NODE_RENEW.digest: node_renew_v2,
    scripts.METADATA_APPEND.digest: metadata_append_v3,
    scripts.TRANSACTION_CHANGE.digest: transaction_change_v1,
    scripts.TRANSACTION_READ.digest: transaction_look_v1,
}
