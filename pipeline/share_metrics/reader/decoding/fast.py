"""Decodes share-state entries straight into Arrow with the package ptars, if it is installed (PM-5, PM-68, PM-82).

Its batches equal those of `rows`. If a run of entries holds anything but plain records of this build, the Python
decoder decodes that run and adds the errors to its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kip932.ids import TOPIC_ID_BYTES
from kip932.records.v1 import share_state_log_pb2 as pb
from share_metrics.reader.decoding.rows import RawEntry, decode, to_batch
from share_metrics.reader.decoding.share_state import TYPES
from share_metrics.reader.decoding.values import TIME_MS_MAX, topic_text
from share_metrics.reader.schemas import Kind, schema_of

_SCHEMA: Final = schema_of(Kind.SHARE_STATE)
_STATE_BATCHES: Final = _SCHEMA.field("state_batches").type
_STATE_BATCH: Final = _STATE_BATCHES.value_type
_ARCHIVED: Final = _SCHEMA.field("archived").type
_STATS: Final = (
    "n_accept", "n_release", "n_reject", "n_timeout", "n_limit", "max_dc", "sum_dc", "hwm", "speo", "write_id",
    "delivery_limit",
)  # fmt: skip


def is_installed() -> bool:
    """Return whether the package ptars can be imported."""
    try:
        import ptars  # noqa: F401, PLC0415 - an extra, and young
    except ImportError:
        return False
    return True


def decode_fast(entries: Sequence[RawEntry], *, light: bool = False) -> Any:
    """A `pyarrow.RecordBatch` with one row for each entry of a share-state log, in order; equal to `decode_page`'s."""
    parts = []
    for plain, run in groupby(entries, lambda entry: entry.letter in TYPES and not entry.damage):
        part = list(run)
        made = _plain(part, light) if plain else None
        rows = [decode(Kind.SHARE_STATE, entry, light=light) for entry in part] if made is None else []
        parts.append(to_batch(Kind.SHARE_STATE, rows) if made is None else made)
    if len(parts) == 1:
        return parts[0]
    return pa.concat_batches(parts) if parts else to_batch(Kind.SHARE_STATE, [])


@cache
def _handler() -> Any:
    import ptars  # noqa: PLC0415 - see is_there

    config = ptars.PtarsConfig(list_value_name="element")
    return ptars.HandlerPool([pb.DESCRIPTOR], config=config).get_for_message(pb.ShareStateRecord.DESCRIPTOR)


def _plain(entries: Sequence[RawEntry], light: bool) -> Any:
    """The batch of entries whose letters are all of this kind; None if one of them is not a plain record."""
    try:
        message = _handler().list_to_record_batch([entry.record for entry in entries])
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # the bytes are not a message; a panic of the extension is not an Exception
        return None
    try:
        epochs = pa.array([entry.id.epoch for entry in entries], pa.int64())
        seqs = pa.array([entry.id.seq for entry in entries], pa.int64())
    except OverflowError:  # no owner assigns such an id
        return None
    letters = pa.array([entry.letter for entry in entries])
    key, snapshot, update = (message.column(name) for name in ("key", "snapshot", "update"))
    if not _is_plain(message, letters, key, snapshot, update):
        return None
    values = _values(snapshot, update, light)
    if values is None:
        return None
    columns = {
        "stream": pa.array([entry.stream for entry in entries]),
        "entry_id": pa.array([str(entry.id) for entry in entries]),
        "epoch": epochs,
        "seq": seqs,
        "ts": _time(message.column("append_time_ms")),
        "record_type": _mapped(letters, lambda letter: TYPES[letter][0]),
        "bytes": pa.array([len(entry.record) for entry in entries], pa.int32()),
        "group_id": pc.struct_field(key, "group_id"),
        "topic_id": _mapped(pc.struct_field(key, "topic_id"), topic_text),
        "partition": pc.struct_field(key, "partition"),
        "state_epoch": _known(pc.struct_field(snapshot, "state_epoch")),
        "create_ts": _time(pc.struct_field(snapshot, "create_timestamp")),
        "write_ts": _time(pc.struct_field(snapshot, "write_timestamp")),
        **values,
    }
    absent = {field.name: pa.nulls(len(entries), field.type) for field in _SCHEMA if field.name not in columns}
    arrays = [(columns | absent)[field.name].cast(field.type) for field in _SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _is_plain(message: Any, letters: Any, key: Any, snapshot: Any, update: Any) -> bool:
    """Return whether all records have version 0, a complete key, the value for their letter, and valid times."""
    times = (
        message.column("append_time_ms"),
        pc.struct_field(snapshot, "create_timestamp"),
        pc.struct_field(snapshot, "write_timestamp"),
    )
    return bool(
        not pc.any(pc.not_equal(message.column("record_version"), 0)).as_py()
        and not key.null_count
        and not pc.any(pc.not_equal(pc.binary_length(pc.struct_field(key, "topic_id")), TOPIC_ID_BYTES)).as_py()
        and pc.equal(letters, "S").equals(snapshot.is_valid())
        and pc.equal(letters, "U").equals(update.is_valid())
        and all(map(_are_times, times))
    )


def _are_times(times_ms: Any) -> bool:
    return not pc.any(pc.or_(pc.less(times_ms, 0), pc.greater(times_ms, TIME_MS_MAX))).as_py()


def _state_batches(lists: Any) -> Any:
    """The column `state_batches` in the type of the schema, from lists of messages."""
    values = lists.values
    *plain, _ = _STATE_BATCH
    fields = [pc.struct_field(values, field.name).cast(field.type) for field in plain]
    fields.append(_time(pc.struct_field(values, "not_before_ms")))
    items = pa.StructArray.from_arrays(fields, fields=list(_STATE_BATCH))
    return pa.ListArray.from_arrays(lists.offsets, items, type=_STATE_BATCHES, mask=lists.is_null())


def _archived(lists: Any) -> Any:
    """The column `archived` in the type of the schema; null where nothing is archived."""
    values = lists.values
    fields = [pc.struct_field(values, field.name).cast(field.type) for field in _ARCHIVED.value_type]
    items = pa.StructArray.from_arrays(fields, fields=list(_ARCHIVED.value_type))
    none = pc.fill_null(pc.equal(pc.list_value_length(lists), 0), True)
    return pa.ListArray.from_arrays(lists.offsets, items, type=_ARCHIVED, mask=none)


def _values(snapshot: Any, update: Any, light: bool) -> dict[str, Any] | None:
    """The columns that snapshots and updates have in common; null in tombstones. None if a time is invalid."""

    def either(name: str) -> Any:
        return pc.coalesce(pc.struct_field(snapshot, name), pc.struct_field(update, name))

    stats = [pc.struct_field(value, "stats") for value in (snapshot, update)]

    def stat(name: str) -> Any:
        return pc.coalesce(*(pc.struct_field(one, name) for one in stats))

    written = pc.or_(snapshot.is_valid(), update.is_valid())
    batches = either("state_batches")
    if not _are_times(pc.struct_field(batches.values, "not_before_ms")):
        return None
    return ({} if light else {"state_batches": _state_batches(batches)}) | {
        "snapshot_epoch": either("snapshot_epoch"),
        "leader_epoch": _known(either("leader_epoch")),
        "generation": _known(either("generation")),
        "start_offset": _known(either("start_offset")),
        "delivery_complete_count": _known(either("delivery_complete_count")),
        "cause": pc.if_else(written, pc.fill_null(stat("cause"), 0), pa.scalar(None, pa.int32())),
        "archived": _archived(stat("archived")),
        **{name: stat(name) for name in _STATS},
    }


def _known(values: Any) -> Any:
    """The values, with null for −1, which means absent in Kafka."""
    return pc.if_else(pc.less(values, 0), pa.scalar(None, values.type), values)


def _time(times_ms: Any) -> Any:
    """Times from ms since 1970; null for 0, which means absent."""
    known = pc.if_else(pc.equal(times_ms, 0), pa.scalar(None, pa.int64()), times_ms)
    return pc.multiply(known, 1000).cast(pa.timestamp("us", tz="UTC"))


def _mapped(values: Any, text: Any) -> Any:
    """The text of each value, computed once for each distinct value (PM-79)."""
    encoded = values.dictionary_encode()
    return pa.array([text(value) for value in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)
