"""Stores, in an ingest's directory, how much memory of the store was in use, for pages of any past time (PM-100).

store-memory.json      [[time, s since 1970; bytes in use; limit in bytes, 0: none], …], the oldest first

Of each five minutes the fullest sample is kept, for a week.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from share_metrics.reader import Kind, Store, StoreReplyError
from share_metrics.reader.streams import streams_of

_NOTE: Final = "store-memory.json"
_SPAN_S: Final = 300
_SAMPLES_MAX: Final = 7 * 86_400 // _SPAN_S
#: How old a sample may be, s, at the time for which it is asked.
_AGE_MAX_S: Final = 900


class Sample(NamedTuple):
    """The memory of a store's fullest node. `limit_bytes` is 0 without a limit."""

    time_s: int
    used_bytes: int
    limit_bytes: int

    @property
    def fullness(self) -> tuple[float, int]:
        """By this, samples are compared: by the part of the limit, then by the bytes in use."""
        return (self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0), self.used_bytes


def note_store_memory(store: Store, data: Path, time_s: int) -> None:
    """Store how much memory is in use now. The caller must own the directory.

    A store whose user may not ask leaves it unknown. Raises OSError, StoreUnreachableError or NoClusterError.
    """
    try:
        now = measured(store, time_s)
    except StoreReplyError:
        return
    if now is None:
        return
    new = (data / _NOTE).with_suffix(".new")
    new.write_text(json.dumps(with_sample(noted_store_memory(data), now)), encoding="utf-8")
    new.replace(data / _NOTE)


def measured(store: Store, time_s: int) -> Sample | None:
    """The memory of the fullest of the nodes that hold the coordinators' streams. Raises what `Store.call` raises."""
    streams = [name for kind in (Kind.SHARE_STATE, Kind.GROUP) for name in streams_of(store, kind)]
    replies = set(store.primary.pipeline([(name, ("INFO", "memory")) for name in streams]))
    found = [Sample(time_s, *values) for reply in replies if (values := _values(reply)) is not None]
    return max(found, key=lambda one: one.fullness, default=None)


def _values(reply: bytes) -> tuple[int, int] | None:
    """Bytes in use and the limit, from the text of INFO; None if the text does not say."""
    fields = dict(line.partition(":")[::2] for line in reply.decode(errors="replace").splitlines())
    with suppress(KeyError, ValueError):
        return int(fields["used_memory"]), int(fields["maxmemory"])
    return None


def with_sample(samples: Sequence[Sample], new: Sample) -> list[Sample]:
    """The samples with a new one: the fullest of each span, the newest _SAMPLES_MAX."""
    if samples and samples[-1].time_s // _SPAN_S == new.time_s // _SPAN_S:
        return [*samples[:-1], max(samples[-1], new, key=lambda one: one.fullness)]
    return [*samples, new][-_SAMPLES_MAX:]


def noted_store_memory(data: Path) -> list[Sample]:
    """The stored samples; none if nothing was stored, as in the directory of an earlier build."""
    with suppress(OSError, ValueError, TypeError):
        return [Sample(*map(int, one)) for one in json.loads((data / _NOTE).read_text(encoding="utf-8"))]
    return []


def memory_at(samples: Sequence[Sample], time_s: float) -> dict[str, int | None] | None:
    """The memory at a time, as a page shows it, from the last sample before it; None if that is 15 min old or more."""
    last = next((one for one in reversed(samples) if one.time_s <= time_s), None)
    if last is None or time_s - last.time_s >= _AGE_MAX_S:
        return None
    return {"used_bytes": last.used_bytes, "limit_bytes": last.limit_bytes or None}
