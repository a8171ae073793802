"""A coordinator's log as the store holds it, field by field, and a replay of it. A test can damage any byte."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any

from kip932.entry_checksum import checksum
from shard_runtime.hosting.compaction_plan import CompactionLimits
from shard_runtime.hosting.replay import ReplayedLog, replay_log
from shard_runtime.hosting.shard import Codec, Shard
from shard_runtime.hosting.shard_tenure import ShardTenure
from shard_runtime.record_log.protocol import CLAIM_TYPE, NOOP_TYPE, STREAM_START, Entry, ShardId, StreamId
from shard_runtime.record_log.redis.codec import claim_record, entries, noop_record, xadd
from shard_runtime.record_log.settlements import Settlement
from tests.support.clocks import HandClock
from tests.support.toy_shard import lease_of

Raw = tuple[bytes, list[bytes]]
_PAGE = 10_000


class StoredLog:
    """Builds the XRANGE reply for one shard's log: `claim`, then `append`, as owners do."""

    def __init__(self, shard: ShardId, codec: Codec[Any]) -> None:
        self.shard = shard
        self.stream = shard.streams[0]
        self.raw: list[Raw] = []
        self._codec = codec
        self._last = StreamId(0, 0)

    def claim(self) -> None:
        """Add the claim of a new owner."""
        self._last = StreamId(self._last.epoch + 10, 0)
        record = claim_record(1, 7, "127.0.0.1:1", f"nonce {self._last.epoch}", 1)
        proof = checksum(self.stream, self._last, CLAIM_TYPE, record)
        self.raw.append((str(self._last).encode(), [b"t", b"C", b"r", record, b"c", proof]))

    def noop(self) -> None:
        """Add a no-op, as after a flush whose outcome was read back."""
        self._put(NOOP_TYPE, noop_record(1))

    def append(self, records: Iterable[Any]) -> None:
        """Append the records of a decision."""
        for record in records:
            self._put(*self._codec.encode(record, 1_000))

    def _put(self, kind: str, data: bytes) -> None:
        self._last = StreamId(self._last.epoch, self._last.seq + 1)
        _, _, _, at, *fields = xadd(self.stream, Entry(self._last, kind, data))
        self.raw.append((_bytes(at), [_bytes(field) for field in fields]))

    def replay(
        self,
        shard: Shard[Any, Any],
        raw: list[Raw] | None = None,
        skips: Iterable[StreamId] | Mapping[StreamId, Settlement] = (),
        page_entries: int = _PAGE,
    ) -> tuple[ReplayedLog, ShardTenure[Any, Any]]:
        """Replay these entries (default: all, intact) as a host does. Raises BrokenRecordError."""
        lease = lease_of(self._last.epoch, HandClock(), lambda reason, above: None)
        tenure = ShardTenure(shard, lease, CompactionLimits())
        settled = dict(skips) if isinstance(skips, Mapping) else dict.fromkeys(skips, Settlement())
        found = entries(self.stream, self.raw if raw is None else raw)
        log: Any = _Read(found, settled)
        work = replay_log(
            log,
            self._codec,
            tenure,
            self.stream,
            replay_from=STREAM_START,
            through=StreamId(self._last.epoch, 2**63),
            page_entries=page_entries,
        )
        if len(found) < page_entries:
            return ran(work), tenure
        with asyncio.Runner() as runner:  # the next page is read concurrently
            return runner.run(work), tenure

    def damaged(self, at: int, field: int, place: int, change: int) -> list[Raw]:
        """Return the entries, with one byte of one field of entry number `at` changed (field 0: the first name)."""
        raw_id, fields = self.raw[at]
        changed = list(fields)
        changed[field] = flipped(changed[field], place, change)
        return [*self.raw[:at], (raw_id, changed), *self.raw[at + 1 :]]

    def every_byte(self) -> Iterator[tuple[int, int, int]]:
        """Yield (entry, field, place) of each stored byte."""
        for at, (_, fields) in enumerate(self.raw):
            for field, data in enumerate(fields):
                for place in range(len(data)):
                    yield at, field, place


class _Read:
    """The part of the record log interface that a replay uses."""

    def __init__(self, found: list[Entry], skips: dict[StreamId, Settlement]) -> None:
        self._found = found
        self._skips = skips

    async def read(self, stream: str, after: StreamId, through: StreamId | None, count: int) -> list[Entry]:
        del stream, through
        return [entry for entry in self._found if entry.id > after][:count]

    async def skipped(self, shard: ShardId) -> dict[StreamId, Settlement]:
        del shard
        return self._skips


def flipped(data: bytes, place: int, change: int) -> bytes:
    """Return `data` with the bits `change` of one byte flipped."""
    return data[:place] + bytes([data[place] ^ change]) + data[place + 1 :]


def ran(work: Coroutine[Any, Any, ReplayedLog]) -> ReplayedLog:
    """Return a coroutine's result without an event loop: the coroutine only yields to others, and a test runs
    thousands."""
    try:
        while work.send(None) is None:
            pass
    except StopIteration as done:
        result: ReplayedLog = done.value
        return result
    raise AssertionError("it waited")


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
