"""The log lines of leaders that drop a share-partition are found, with reason and time."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from typing import Final

import pytest
import structlog

from kip932.errors import RequestTimedOutError
from kip932.ids import topic_id_text
from partition_leader.share_partition import host
from partition_leader.share_partition.core.status import DropReason
from tests.chaos.drops import drops
from tests.chaos.history import Dropped, now_ms
from tests.unit.partition_leader.share_partition.worlds import GROUP, World, key, run, settle

METRIC: Final = "sharegroups_share_partition_drops_total"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Yield the lines that the host logs, in the format of `shard_runtime.logs`."""
    out = io.StringIO()
    shape: list[structlog.typing.Processor] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.JSONRenderer(),
    ]
    monkeypatch.setattr(host, "log", structlog.wrap_logger(structlog.WriteLogger(out), shape))
    return out


async def give_up(world: World) -> None:
    """Leave a member's acceptance without a response, and the read of its outcome too."""
    await world.produce(4)
    member = world.member("m")
    assert await member.fetch(0, max_wait_ms=100).ranges() == [(0, 3, 1)]
    world.persister.fail("write", RequestTimedOutError("lost"))
    world.persister.fail("read", RequestTimedOutError("lost"))
    await member.accept(0, 3).ack_error()
    await settle()
    assert await member.fetch(max_wait_ms=50).ranges() == [(0, 3, 1)]


async def lose(world: World) -> None:
    await world.produce(4)
    await world.member("m").fetch(0, max_wait_ms=100).ranges()
    world.lose()
    await settle()


async def leave(world: World) -> None:
    await world.produce(4)
    member = world.member("m")
    await member.fetch(0, max_wait_ms=100).ranges()
    member.acknowledge({}, epoch=-1)
    await settle()


@pytest.mark.rule("PL-707", "PL-631", "PL-632", "PL-523")
@pytest.mark.parametrize(
    ("reason", "scenario"), [("outcome_unknown", give_up), ("leadership_lost", lose), ("released", leave)]
)
def test_a_share_partition_that_is_let_go_is_logged_and_counted_with_the_reason(
    said: io.StringIO, reason: str, scenario: Callable[[World], Awaitable[None]]
) -> None:
    async def watched(world: World) -> None:
        began = now_ms()
        await scenario(world)
        logs, topics = {"partition_leader-0": said.getvalue()}, {topic_id_text(key().topic_id): "t"}
        (drop,) = drops(logs, GROUP, topics)
        assert drop == Dropped("partition_leader-0", "t", key().partition, reason, drop.at_ms)
        assert began - 1 <= drop.at_ms <= now_ms() + 1
        assert list(drops(logs, "another", topics)) == list(drops(logs, GROUP, {})) == []
        counted = {each: world.registry.get_sample_value(METRIC, {"reason": each}) for each in DropReason}
        assert counted == {each: int(each == reason) for each in DropReason}

    run(watched)
