"""What ends a replay: an entry that is missing, or that does not fit those before it, as surely as a damaged one."""

from __future__ import annotations

from typing import Any

import pytest

from shard_runtime.hosting.host_options import HostState
from shard_runtime.hosting.replay import BrokenRecordError
from shard_runtime.record_log.protocol import StreamId
from tests.support.toy_shard import Get, Put, ToyShard
from tests.unit.shard_runtime.hosting.test_shard_host import World


@pytest.mark.rule("CM-102", "SR-7")
@pytest.mark.parametrize(("missing", "why"), [(0, "does not follow"), (1, "entries between them are missing")])
@pytest.mark.asyncio
async def test_a_shard_with_a_missing_entry_is_not_served(missing: int, why: str) -> None:
    world = await World().gain()
    for number in range(3):
        await world.host.submit(Put("a", number))
    world.host.lost("test")
    del world.log.entries[missing + 1]
    with pytest.raises(BrokenRecordError, match=why):
        await world.gain(2)
    assert world.host.state is HostState.FAILED


@pytest.mark.rule("CM-102")
@pytest.mark.asyncio
async def test_a_shard_with_a_record_that_does_not_fit_those_before_it_is_not_served_until_it_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await World().gain()
    await world.host.submit(Put("a", 1))
    await world.host.submit(Put("a", 2))
    world.host.lost("test")
    replay = ToyShard.replay

    def fits(shard: ToyShard, record: Any) -> Any:
        if "2" in str(record):
            raise KeyError("no such member")
        return replay(shard, record)

    monkeypatch.setattr(ToyShard, "replay", fits)
    with pytest.raises(BrokenRecordError, match=r"entry 1-2 of .* does not fit what was replayed before it"):
        await world.gain(2)
    assert world.host.state is HostState.FAILED
    skipped = frozenset({StreamId(1, 2)})

    async def settled(shard: object) -> frozenset[StreamId]:
        return skipped

    monkeypatch.setattr(world.log, "skipped", settled, raising=False)
    await world.gain(3)
    assert await world.host.submit(Get("a")) == 1
