"""Samples where the logs of topic-partitions start and end now, without transferring any batch (PM-18)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError

from kip932.records.v1 import topic_log_pb2 as pb
from share_metrics.reader.decoding import RawEntry
from share_metrics.reader.decoding.log_meta import decode_log_meta, topic_partition
from share_metrics.reader.entries import indexed_entry, stored_entry
from share_metrics.reader.offsets import entry_id
from share_metrics.reader.schemas import Kind
from share_metrics.reader.scripts import INDEX, TIP
from share_metrics.reader.store import Store
from share_metrics.reader.streams import streams_of

_ENTRIES_CHECKED: Final = 64
_CLAIM_LETTER: Final = "C"
SCHEMA: Final = pa.schema(
    [
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("log_start_offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("log_end_offset", pa.int64()),
    ]
)


class LogEnd(NamedTuple):
    """The offsets of one log; None for those that the stored entries do not show."""

    topic_id: str
    partition: int
    log_start_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None


def log_ends(store: Store) -> list[LogEnd]:
    """The log ends of all existing topic-partitions. Raises what `Store.call` raises.

    The high watermark is the end of the stored entries, including one that is not confirmed yet. A partition to which
    nothing was ever produced ends at 0, whether it has a log or not.
    """
    streams = streams_of(store, Kind.LOG_META)
    tips = store.pipeline([(stream, ("EVAL_RO", TIP, 1, stream)) for stream in streams])
    there = [(stream, tip) for stream, tip in zip(streams, tips, strict=True) if tip]
    firsts = store.pipeline([(one, ("EVAL_RO", INDEX, 1, one, "-", "+", _ENTRIES_CHECKED)) for one, _ in there])
    controls = [stream.removesuffix("log") + "ctl" for stream, _ in there]
    starts = store.pipeline([(one, ("XREVRANGE", one, "+", "-", "COUNT", _ENTRIES_CHECKED)) for one in controls])
    found = [LogEnd(*topic_partition(stream), 0, 0, 0) for stream, tip in zip(streams, tips, strict=True) if not tip]
    for (stream, tip), key, first, start in zip(there, controls, firsts, starts, strict=True):
        main = [indexed_entry(stream, raw) for raw in first]
        control = [stored_entry(key, raw) for raw in start]
        known = [at for at in (_first_offset(main), _newest_start(control)) if at is not None]
        end = _end(main, entry_id(tip[0]).seq, int(tip[1]))
        found.append(LogEnd(*topic_partition(stream), max(known, default=0 if end == 0 else None), end, end))
    return sorted(found)


def _end(entries: Sequence[RawEntry], last_seq: int, added: int) -> int | None:
    """The end of a log, from its last entry's id, its first entries, and the number ever added; None if they do not
    show it.

    A claim's id does not show the end. If the log holds anything, a marker follows the claim at once (CM-40); between
    the two the end is not shown. A log that has only ever had claims is empty.
    """
    if last_seq:
        return last_seq
    only_claims = added == len(entries) and all(one.letter == _CLAIM_LETTER for one in entries)
    return 0 if only_claims else None


def _first_offset(entries: Sequence[RawEntry]) -> int | None:
    """The first stored offset, from the first batch, or from a marker if all batches are trimmed."""
    marked = None
    for entry in entries:
        if entry.damage:
            continue
        try:
            row = decode_log_meta(entry.letter, entry.record) or {}
        except (DecodeError, ValueError):
            continue
        if row.get("record_type") == "batch":
            return int(row["base_offset"])
        marked = row.get("log_end_offset", marked)
    return marked


def _newest_start(entries: Sequence[RawEntry]) -> int | None:
    """The log start offset of the newest record that has one; it may be inside a batch (CM-45)."""
    for entry in entries:
        if entry.letter != "L" or entry.damage:
            continue
        try:
            return int(pb.ControlLogRecord.FromString(entry.record).log_start.log_start_offset)
        except DecodeError:
            continue
    return None
