"""Turns every entry into one row, even a malformed one, so that rows match the store's count (PM-11, PM-13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError

from kip932.records.v1 import owner_log_pb2 as owner_pb
from share_metrics.reader.decoding.group import decode_group
from share_metrics.reader.decoding.log_meta import decode_log_meta, topic_partition
from share_metrics.reader.decoding.share_state import decode_share_state
from share_metrics.reader.decoding.values import time_us
from share_metrics.reader.offsets import EntryId, Gap
from share_metrics.reader.schemas import CLAIM, GAP, MALFORMED, NOOP, UNKNOWN, Kind, schema_of


class RawEntry(NamedTuple):
    """An entry as stored: its stream, its id, its fields `t` (`letter`) and `r` (`record`) (CM-16).

    `damage`: the error that its checksum shows; "" when it is intact (CM-101).
    """

    stream: str
    id: EntryId
    letter: str
    record: bytes
    damage: str = ""


#: The largest number that the columns of an id can hold; the store's ids may be up to twice that.
_LONG_MAX: Final = 2**63 - 1
_light: Final = partial(decode_share_state, light=True)
_DECODERS: Final[dict[Kind, Callable[[str, bytes], dict[str, Any] | None]]] = {
    Kind.SHARE_STATE: decode_share_state,
    Kind.GROUP: decode_group,
    Kind.LOG_META: decode_log_meta,
}


def decode(kind: Kind, entry: RawEntry, *, light: bool = False) -> dict[str, Any]:
    """The row of an entry. Bytes that are not a record give a row of type `malformed` with `error` and `raw`.

    So does an id too large for any owner to assign: `epoch` and `seq` are cut to the largest number that fits, and
    `entry_id` has the whole id. `light`: state batches are not decoded, so errors in them are not found (PM-78).
    """
    row: dict[str, Any] = {
        "stream": entry.stream,
        "entry_id": str(entry.id),
        **_numbers(entry.id),
        "bytes": len(entry.record),
    }
    if kind is Kind.LOG_META:
        row["topic_id"], row["partition"] = topic_partition(entry.stream)
    if max(entry.id) > _LONG_MAX:
        return row | {"record_type": MALFORMED, "error": f"no owner gives the id {entry.id}", "raw": entry.record}
    if entry.damage:
        return row | {"record_type": MALFORMED, "error": f"damaged: {entry.damage}", "raw": entry.record}
    try:
        found = _OF_ANY_LOG[entry.letter](entry.record) if entry.letter in _OF_ANY_LOG else None
        found = found or (_light if light else _DECODERS[kind])(entry.letter, entry.record)
    except (DecodeError, ValueError) as error:
        return row | {"record_type": MALFORMED, "error": f"type {entry.letter!r}: {error}", "raw": entry.record}
    return row | (found or {"record_type": UNKNOWN, "error": f"type {entry.letter!r} of a later build"})


def decode_page(kind: Kind, entries: Iterable[RawEntry], *, light: bool = False) -> Any:
    """A `pyarrow.RecordBatch` with one row for each entry, in order. Only `share_state` can be read `light`."""
    return to_batch(kind, [decode(kind, entry, light=light) for entry in entries])


def gap_row(gap: Gap) -> dict[str, Any]:
    """The row for lost entries; the store has no entry for it."""
    return {
        "stream": gap.stream,
        "entry_id": str(gap.to_id),
        **_numbers(gap.to_id),
        "record_type": GAP,
        "error": gap.text,
    }


def to_batch(kind: Kind, rows: list[dict[str, Any]]) -> Any:
    """Rows as one `pyarrow.RecordBatch` of the kind's schema; columns a row lacks are null."""
    return pa.RecordBatch.from_pylist(rows, schema=schema_of(kind))


def _numbers(at: EntryId) -> dict[str, int]:
    return {"epoch": min(at.epoch, _LONG_MAX), "seq": min(at.seq, _LONG_MAX)}


def _claim(data: bytes) -> dict[str, Any]:
    return {"record_type": CLAIM, "ts": time_us(owner_pb.ClaimEntry.FromString(data).append_time_ms)}


def _noop(data: bytes) -> dict[str, Any]:
    return {"record_type": NOOP, "ts": time_us(owner_pb.NoOpEntry.FromString(data).append_time_ms)}


_OF_ANY_LOG: Final = {"C": _claim, "N": _noop}
