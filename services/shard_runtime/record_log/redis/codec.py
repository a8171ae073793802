"""Translates between log entries and a stream's fields `t`, `r`, `b`, `c`, `k` (CM-16, CM-100, CM-106), and makes the
two records that every log may hold: claim and no-op.

It never decides; it is the only module of this package that sees protobuf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kip932.entry_checksum import checksum, damage, intact_check, key_of, key_proof
from kip932.records.v1.owner_log_pb2 import ClaimEntry, NoOpEntry
from shard_runtime.record_log.protocol import Entry, StreamId, StreamTip
from shard_runtime.record_log.redis.connection import Command, Reply

_new = tuple.__new__  # makes an Entry or StreamId from a tuple of all fields; faster, and pages have many entries
#: Prefixes of coordinators' logs, whose entries carry a key proof.
_KEYED: Final = ("{gc:", "{sgs:")
#: The fields that an entry from before checksums must have, and those that it may have.
_OLD_LEAST: Final = {b"t", b"r"}
_OLD_MOST: Final = {b"t", b"r", b"b"}


def claim_record(node_id: int, incarnation: int, address: str, nonce: str, wall_ms: int) -> bytes:
    """Field `r` of a claim entry."""
    return ClaimEntry(
        append_time_ms=wall_ms, node_id=node_id, incarnation=incarnation, address=address, nonce=nonce
    ).SerializeToString(deterministic=True)


def noop_record(wall_ms: int) -> bytes:
    """Field `r` of a no-op entry."""
    return NoOpEntry(append_time_ms=wall_ms).SerializeToString(deterministic=True)


def xadd(stream: str, entry: Entry) -> Command:
    """The command that appends one entry. It never creates a stream: only a claim does (CM-13)."""
    (epoch, seq), kind, record, batch, *_ = entry
    at, proof = f"{epoch}-{seq}", checksum(stream, entry.id, kind, record, batch)
    if batch:
        return ("XADD", stream, "NOMKSTREAM", at, "t", kind, "r", record, "b", batch, "c", proof)
    if stream.startswith(_KEYED):
        whose = key_proof(stream, entry.id, key_of(record))
        return ("XADD", stream, "NOMKSTREAM", at, "t", kind, "r", record, "c", proof, "k", whose)
    return ("XADD", stream, "NOMKSTREAM", at, "t", kind, "r", record, "c", proof)


def stream_id(data: bytes | str) -> StreamId:
    """Parse `<epoch>-<seq>`, given as text or bytes."""
    if isinstance(data, bytes):
        data = data.decode()
    epoch, _, seq = data.partition("-")
    return StreamId(int(epoch), int(seq))


def stream_tip(reply: Reply) -> StreamTip:
    """Parse a reply of `stream_tip_v1` for a stream that exists."""
    return StreamTip(stream_id(reply[0]), int(reply[1]), int(reply[2]), stream_id(reply[3]))


def entries(stream: str, reply: Reply) -> list[Entry]:
    """Entries of an XRANGE or XREVRANGE reply; `damage` describes the fault that the checksum found (CM-101)."""
    found: list[Entry] = []
    epoch, epoch_text, kinds = 0, b"", dict[bytes, tuple[str, Callable[[StreamId, bytes, bytes], bool]]]()
    for raw_id, fields in reply:
        if len(fields) == 8:  # the coordinators' layout, which nearly all entries in a replay have
            t, raw_kind, r, record, c, proof, k, whose = fields
            if t == b"t" and r == b"r" and c == b"c" and k == b"k":
                before, _, seq = raw_id.partition(b"-")
                if before != epoch_text:
                    epoch, epoch_text = int(before), before
                at = _new(StreamId, (epoch, int(seq)))
                known = kinds.get(raw_kind)
                if known is None:
                    name = raw_kind.decode(errors="replace")
                    known = kinds[raw_kind] = name, intact_check(stream, name)
                kind, intact = known
                wrong = "" if intact(at, record, proof) else damage(stream, at, kind, record, batch=b"", found=proof)
                found.append(_new(Entry, (at, kind, record, b"", wrong, whose if wrong else b"")))
                continue
        found.append(_any_entry(stream, raw_id, fields))
    return found


def _any_entry(stream: str, raw_id: bytes, fields: Reply) -> Entry:
    """An entry of any layout, with all, some or none of the fields."""
    size = len(fields)
    # First the two common layouts: claims and topics' markers, then batches.
    if size == 6 and fields[4] == b"c" and fields[0] == b"t" and fields[2] == b"r":
        return _judged(stream, raw_id, fields[1], fields[3], batch=b"", found=fields[5])
    if size == 8 and fields[6] == b"c" and fields[0] == b"t" and fields[2] == b"r" and fields[4] == b"b":
        return _judged(stream, raw_id, fields[1], fields[3], batch=fields[5], found=fields[7])
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    kind, record, batch = (named.get(name, b"") for name in (b"t", b"r", b"b"))
    found = named.get(b"c")
    if found is None and not (_OLD_LEAST <= named.keys() <= _OLD_MOST):
        found = b""  # field names are damaged: without this it would pass for an older entry without a checksum
    return _judged(stream, raw_id, kind, record, batch=batch, found=found, proof=named.get(b"k", b""))


def index_entries(stream: str, reply: Reply) -> list[Entry]:
    """Entries of a `log_index_v3` reply: after its first number a flat list of id, t, r, c. It has no batches, so those
    are not checked."""
    return [_judged(stream, *reply[i : i + 3], batch=None, found=reply[i + 3]) for i in range(1, len(reply), 4)]


def _judged(
    stream: str,
    raw_id: bytes,
    raw_kind: bytes,
    record: bytes,
    *,
    batch: bytes | None,
    found: bytes | None,
    proof: bytes = b"",
) -> Entry:
    at, kind = stream_id(raw_id), raw_kind.decode(errors="replace")
    wrong = damage(stream, at, kind, record, batch=batch, found=found)
    return Entry(at, kind, record, batch or b"", wrong, proof if wrong else b"")
