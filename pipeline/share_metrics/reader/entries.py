"""Builds entries from the store's replies and verifies their checksums (CM-100, CM-101)."""

from __future__ import annotations

from typing import Any

from kip932.entry_checksum import damage
from share_metrics.reader.decoding import RawEntry
from share_metrics.reader.offsets import entry_id


def stored_entry(stream: str, raw: Any) -> RawEntry:
    """An entry from an XRANGE reply."""
    raw_id, fields = raw
    # The two layouts in coordinators' logs: claims with 6 values, and all other entries with 8, including field `k`.
    if len(fields) in {6, 8} and fields[4] == b"c" and fields[0] == b"t" and fields[2] == b"r":
        return _judged(stream, raw_id, fields[1], fields[3], found=fields[5])
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    return _judged(
        stream, raw_id, named.get(b"t", b""), named.get(b"r", b""), batch=named.get(b"b", b""), found=named.get(b"c")
    )


def indexed_entry(stream: str, raw: Any) -> RawEntry:
    """An entry from a reply of the script INDEX. The reply has no batch, so the batch is not verified."""
    return _judged(stream, *raw[:3], batch=None, found=raw[3])


def _judged(
    stream: str, raw_id: bytes, letter: bytes, record: bytes, *, batch: bytes | None = b"", found: bytes | None
) -> RawEntry:
    at, kind = entry_id(raw_id), letter.decode(errors="replace")
    return RawEntry(stream, at, kind, record, damage(stream, at, kind, record, batch=batch, found=found))
