"""The key of a damaged entry, found by its checksum among the keys of a long log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.entry_checksum import key_proof
from shard_runtime.hosting.replay import COMPARED_KEYS_SLICE, DamagedKeys
from shard_runtime.record_log.protocol import Entry, StreamId

pytestmark = pytest.mark.asyncio

STREAM = "{sgs:3}:log"


class Log:
    """A log with one entry for each key."""

    def __init__(self, keys: int) -> None:
        self.entries = [
            Entry(StreamId(5, number), "S", b"\x12\x08" + b"%08d" % number) for number in range(1, keys + 1)
        ]

    async def read(self, stream: str, after: StreamId, through: StreamId, count: int) -> list[Entry]:
        return self.entries[after.seq : after.seq + count]


async def test_others_have_their_turn_while_a_proof_is_compared_with_many_keys() -> None:
    """100,000 keys take 90 ms for one entry (CM-94), and a page may hold hundreds of damaged entries. A node that is
    blocked for that long loses all its leases."""
    size, turns = 20 * COMPARED_KEYS_SLICE, 0
    log: Any = Log(size)
    keys = DamagedKeys(log, STREAM, StreamId(5, 0), StreamId(6, 0), size + 1)
    at = StreamId(5, 77)
    damaged = Entry(at, "S", b"\xff", damage="a turned bit", key_proof=key_proof(STREAM, at, b"%08d" % 4321))
    assert await keys.of(damaged) == b"%08d" % 4321  # the first call reads the keys
    done = asyncio.Event()

    async def others() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    assert await keys.of(damaged) == b"%08d" % 4321
    done.set()
    await task
    assert turns >= 19
