"""Batches for the tests of the log's core."""

from __future__ import annotations

from partition_leader.topic_log.core.batch import LogBatch, NewBatch


def stored(base: int, records: int = 1, size: int = 10, at_ms: int = 0, newest_ms: int = 0) -> LogBatch:
    return LogBatch(base, base + records - 1, size, b"x" * size, at_ms, newest_ms)


def sequenced(sequence: int, records: int = 1, epoch: int = 0, producer: int = 7) -> NewBatch:
    return NewBatch(b"", records, 0, producer, epoch, sequence)
