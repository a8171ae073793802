"""Between log entries and what lies in a stream: fields `t`, `r`, `b` (CM-16), and the two entries every log may hold.

It never decides; it is the only module of this package that sees protobuf.
"""

from __future__ import annotations

from kip932.records.v1.owner_log_pb2 import ClaimEntry, NoOpEntry
from shard_runtime.record_log import Entry, StreamId

from .connection import Command, Reply


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
    stream_id = f"{entry.id.epoch}-{entry.id.seq}"
    if entry.batch:
        return ("XADD", stream, "NOMKSTREAM", stream_id, "t", entry.kind, "r", entry.record, "b", entry.batch)
    return ("XADD", stream, "NOMKSTREAM", stream_id, "t", entry.kind, "r", entry.record)


def stream_id(data: bytes | str) -> StreamId:
    """`<epoch>-<seq>` as text or bytes."""
    if isinstance(data, bytes):
        data = data.decode()
    epoch, _, seq = data.partition("-")
    return StreamId(int(epoch), int(seq))


def entries(reply: Reply) -> list[Entry]:
    """Entries of an XRANGE or XREVRANGE reply."""
    found: list[Entry] = []
    for raw_id, fields in reply:
        if len(fields) == 4 and fields[0] == b"t" and fields[2] == b"r":  # the layout writers use, without a look-up
            found.append(Entry(stream_id(raw_id), fields[1].decode(), fields[3]))
            continue
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        found.append(
            Entry(stream_id(raw_id), named.get(b"t", b"").decode(), named.get(b"r", b""), named.get(b"b", b""))
        )
    return found


def index_entries(reply: Reply) -> list[Entry]:
    """Entries of a `log_index_v1` reply: flat id, t, r."""
    return [Entry(stream_id(reply[i]), reply[i + 1].decode(), reply[i + 2]) for i in range(0, len(reply), 3)]
