"""Computes replays, progress and loads of share-partitions in one pass over the rows of their streams. Pure.

All records of a share-partition are in one stream (SC-3). So one pass over a stream in the order of ids sees each
share-partition's records in order too, with the stream's event time and gaps (PM-7, PM-11, PM-32, PM-34). No Spark, no
I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, Final

from .progress_rows import Progress
from .replay_runs import ColumnReplay
from .stream_load import StreamLoad
from .write_columns import NUMBERS, Blocks, Key, by_stream

_COMMON: Final = ("stream", "epoch", "seq", "ts", "record_type", "group_id", "topic_id", "partition")


class Part(Flag):
    """The results to compute from the rows."""

    REPLAY = auto()
    PROGRESS = auto()
    LOAD = auto()

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that it needs; `stream` is the first of them."""
        named = {
            Part.REPLAY: ("state_epoch", "start_offset", "write_id", "delivery_limit", "hwm", "archived"),
            Part.PROGRESS: tuple(name for name in NUMBERS if name != "delivery_limit"),
            Part.LOAD: ("bytes", "error"),
        }
        batches = ("state_batches",) if self & (Part.REPLAY | Part.PROGRESS) else ()
        return tuple(dict.fromkeys((*_COMMON, *(name for part in self for name in named[part]), *batches)))


EVERY: Final = Part.REPLAY | Part.PROGRESS | Part.LOAD


@dataclass(slots=True)
class Measured:
    """The results for one stream."""

    stream: str
    load: StreamLoad = field(default_factory=StreamLoad)
    replays: dict[Key, ColumnReplay] = field(default_factory=dict)
    progress: dict[Key, Progress] = field(default_factory=dict)


def measured(
    batches: Iterable[Any], window_us: int, delivery_limit: int = 5, parts: Part = EVERY
) -> Iterator[Measured]:
    """Yield the results of one stream after the other, from `pyarrow.RecordBatch`es with the columns that `parts` need.

    The rows must be grouped by stream, and sorted by id within it. A gap must come before the entry at which it ends,
    but a lost tail after it; rows of one entry must be sorted by type. Memory holds the results of one stream and one
    block of rows at a time. Raises ValueError for a replay of rows without state batches.
    """
    for name, blocks in by_stream(batches):
        found, stream = Measured(name), Blocks(whole=Part.REPLAY in parts)
        for block in blocks:
            if Part.LOAD in parts:
                found.load.take(block)
            for key, writes in stream.of(block):
                if Part.REPLAY in parts:
                    if key not in found.replays:
                        found.replays[key] = ColumnReplay(window_us, delivery_limit)
                    found.replays[key].take(writes)
                if Part.PROGRESS in parts:
                    if key not in found.progress:
                        found.progress[key] = Progress(window_us)
                    found.progress[key].take(writes)
                found.load.keys.add(key)
        yield found
