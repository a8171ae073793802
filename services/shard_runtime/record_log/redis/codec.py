"""Translates between log entries and a stream's fields `t`, `r`, `b`, `c` (CM-16, CM-100), and makes the two records
that every log may hold: claim and no-op.

It never decides; it is the only module of this package that sees protobuf.
"""

from __future__ import annotations

from kip932.entry_checksum import checksum, damage
from kip932.records.v1.owner_log_pb2 import ClaimEntry, NoOpEntry
from shard_runtime.record_log.protocol import Entry, StreamId
from shard_runtime.record_log.redis.connection import Command, Reply


def claim_record(node_id: int, incarnation: int, address: str, nonce: str, wall_ms: int) -> bytes:
    """Field `r` of a claim entry."""
    return ClaimEntry(
        append_time_ms=wall_ms, node_id=node_id, incarnation=incarnation, address=address, nonce=nonce
    ).SerializeToString(deterministic=True)


def noop_record(wall_ms: int) -> bytes:
    """Field `r` of a no-op entry."""
    return NoOpEntry(append_time_ms=wall_ms).SerializeToString(deterministic=True)


def xadd(stream: str, entry: Entry) -> Command:
    """The append of one entry; it never creates a stream (CM-13: only a claim does)."""
    (epoch, seq), kind, record, batch, _ = entry
    at, proof = f"{epoch}-{seq}", checksum(stream, entry.id, kind, record, batch)
    if batch:
        return ("XADD", stream, "NOMKSTREAM", at, "t", kind, "r", record, "b", batch, "c", proof)
    return ("XADD", stream, "NOMKSTREAM", at, "t", kind, "r", record, "c", proof)


def stream_id(data: bytes | str) -> StreamId:
    """`<epoch>-<seq>` as text or bytes."""
    if isinstance(data, bytes):
        data = data.decode()
    epoch, _, seq = data.partition("-")
    return StreamId(int(epoch), int(seq))


def entries(stream: str, reply: Reply) -> list[Entry]:
    """Entries of an XRANGE or XREVRANGE reply; `damage` says what the checksum shows to be wrong (CM-101)."""
    found: list[Entry] = []
    for raw_id, fields in reply:
        size = len(fields)
        if size == 6 and fields[4] == b"c" and fields[0] == b"t" and fields[2] == b"r":  # the layout writers use
            found.append(_judged(stream, raw_id, fields[1], fields[3], batch=b"", found=fields[5]))
        elif size == 8 and fields[6] == b"c" and fields[0] == b"t" and fields[2] == b"r" and fields[4] == b"b":
            found.append(_judged(stream, raw_id, fields[1], fields[3], batch=fields[5], found=fields[7]))
        else:
            named = dict(zip(fields[::2], fields[1::2], strict=True))
            kind, record, batch = (named.get(name, b"") for name in (b"t", b"r", b"b"))
            found.append(_judged(stream, raw_id, kind, record, batch=batch, found=named.get(b"c")))
    return found


def index_entries(stream: str, reply: Reply) -> list[Entry]:
    """Entries of a `log_index_v2` reply: a flat list of id, t, r, c. It carries no batches, so none is checked."""
    return [_judged(stream, *reply[i : i + 3], batch=None, found=reply[i + 3]) for i in range(0, len(reply), 4)]


def _judged(
    stream: str, raw_id: bytes, raw_kind: bytes, record: bytes, *, batch: bytes | None, found: bytes | None
) -> Entry:
    at, kind = stream_id(raw_id), raw_kind.decode(errors="replace")
    wrong = damage(stream, at, kind, record, batch=batch, found=found)
    return Entry(at, kind, record, batch or b"", wrong)
