"""The tasks of ownership around its core: bounded replays, hand-over order, hints, failed loads. The store is a
script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from shard_runtime.hosting.host_options import HostState
from shard_runtime.hosting.shard_states import shard_states
from shard_runtime.ownership.lease import Lease
from shard_runtime.ownership.lease_terms import OwnerIdentity
from shard_runtime.ownership.ownership import Ownership, OwnershipOptions
from shard_runtime.ownership.placement import NODE_LIVE, ROLES
from shard_runtime.record_log.cluster_store import NodeRecord
from shard_runtime.record_log.protocol import (
    STREAM_START,
    ClaimAnswer,
    Claimed,
    ClaimRequest,
    Renewal,
    Renewed,
    ShardId,
    ShardKind,
    ShardLostError,
    StoreUnavailableError,
    TailLostError,
)
from tests.support.clocks import HandClock

pytestmark = pytest.mark.asyncio

SHARDS = frozenset(ShardId(ShardKind.GROUP, str(number)) for number in range(8))
FIRST = ShardId(ShardKind.GROUP, "0")


@dataclass
class Script:
    """The store: grants every claim with a rising epoch, unless `answers` contains another result; records the
    calls."""

    clock: HandClock
    events: list[str] = field(default_factory=list)
    epochs: int = 0
    answers: list[ClaimAnswer | Exception] = field(default_factory=list)
    lost_now: dict[ShardId, ShardLostError] = field(default_factory=dict)
    hints_fail: int = 0
    hinted: dict[str, tuple[int, int]] = field(default_factory=dict)
    requests: list[ClaimRequest] = field(default_factory=list)
    renewals: list[Renewal] = field(default_factory=list)
    up: bool = True
    history: str = "h"

    def available_for(self, shard: ShardId) -> bool:
        return self.up

    def history_of(self, shard: ShardId) -> str:
        return self.history

    def tail_checked(self, shard: ShardId) -> str:
        return ""

    def lost(self, shard: ShardId) -> ShardLostError | None:
        return self.lost_now.pop(shard, None)

    async def claim(self, request: ClaimRequest) -> ClaimAnswer:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        self.epochs += 1
        return Claimed(self.epochs, False, STREAM_START, None, self.history, self.clock.ms)

    async def renew(self, renewals: Sequence[Renewal]) -> list[Renewed | None]:
        self.renewals.extend(renewals)
        return [Renewed(True, self.history, self.clock.ms) if self.up else None for _ in renewals]

    async def release(self, shard: ShardId, incarnation: int, epoch: int) -> bool:
        self.events.append(f"release {shard.name}")
        return True

    async def delete_streams(self, shard: ShardId) -> None:
        self.events.append(f"delete {shard.name}")

    async def drop(self, shard: ShardId) -> None:
        self.events.append(f"forget {shard.name}")

    async def put_hints(self, kind: ShardKind, hints: Mapping[str, tuple[int, int]]) -> None:
        if self.hints_fail:
            self.hints_fail -= 1
            raise StoreUnavailableError("away")
        self.hinted.update(hints)

    async def hints_of(self, kind: ShardKind, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        return {name: self.hinted[name] for name in names if name in self.hinted}


class Owner:
    def __init__(self, world: World, shard: ShardId) -> None:
        self.world = world
        self.shard = shard
        self.demand = 0
        self.lease: Lease | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.lost_for: list[str] = []

    async def gained(self, claimed: Claimed, lease: Lease) -> None:
        self.lease = lease
        self.world.loading.append(self.shard.name)
        self.world.loading_most = max(self.world.loading_most, len(self.world.loading))
        self.world.loaded.append(self.shard.name)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            if self.failures:
                raise self.failures.pop(0)
        finally:
            self.world.loading.remove(self.shard.name)

    def lost(self, reason: str) -> None:
        assert self.lease is None or not self.lease.valid()
        self.lost_for.append(reason)

    async def releasing(self) -> None:
        self.world.script.events.append(f"releasing {self.shard.name}")


class World:
    def __init__(self, options: OwnershipOptions | None = None) -> None:
        self.clock = HandClock()
        self.script = Script(self.clock)
        self.owners = {shard: Owner(self, shard) for shard in SHARDS}
        self.loading: list[str] = []
        self.loaded: list[str] = []
        self.loading_most = 0
        self.shards = SHARDS
        self.deleted: set[ShardId] = set()
        self.nodes = [self.node(1)]
        self.ownership = Ownership(
            self.script,  # type: ignore[arg-type]  # implements only what ownership calls
            self.script,  # type: ignore[arg-type]  # implements only what ownership calls
            self.clock,
            OwnerIdentity(1, 77, "127.0.0.1:1"),
            shards=lambda: self.shards,
            owner_of=self.owners.__getitem__,
            nodes=lambda: self.nodes,
            deleted=self.deleted.__contains__,
            options=options or OwnershipOptions(tick_ms=5, loads_max=2),
        )

    @staticmethod
    def node(number: int) -> NodeRecord:
        return NodeRecord(number, number, f"n{number}", f"127.0.0.1:{number}", ROLES, "", NODE_LIVE, "")

    async def until(self, condition: Callable[[], bool], pause_ms: int = 0) -> None:
        """Wait for the condition. `pause_ms`: advance the clock by this much repeatedly, since a pause may start
        late."""
        for turn in range(2_000):
            if condition():
                return
            if turn % 200 == 0:
                self.clock.ms += pause_ms
            await asyncio.sleep(0.001)
        raise AssertionError("the awaited event did not happen in time")

    async def settled(self, pause_ms: int = 0) -> World:
        await self.until(self.ownership.settled, pause_ms)
        return self


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.ownership.stop()


@pytest.mark.rule("CM-12")
async def test_replays_are_bounded_and_those_asked_for_come_first(world: World) -> None:
    for owner in world.owners.values():
        owner.gate.clear()
    world.owners[ShardId(ShardKind.GROUP, "6")].demand = 5
    world.ownership.start()
    await world.until(lambda: len(world.script.requests) == len(SHARDS) and len(world.loading) == 2)
    await world.until(lambda: len(world.ownership.core.queued()) == 6)
    world.owners[ShardId(ShardKind.GROUP, "3")].demand = 9
    waiting = [claim.shard.name for claim in world.ownership.core.queued()]
    await asyncio.sleep(0.05)  # a few ticks: the order of replays is decided once per tick
    for owner in world.owners.values():
        owner.gate.set()
    await world.settled()
    assert world.loading_most == 2
    asked_for = [name for name in ("3", "6") if name in waiting]
    assert world.loaded[2 : 2 + len(asked_for)] == asked_for


@pytest.mark.rule("CM-12", "CM-4")
async def test_an_owner_stops_before_its_release_is_sent(world: World) -> None:
    world.ownership.start()
    await world.settled()
    world.nodes = [world.node(2)]
    world.ownership.wake()
    await world.until(lambda: not world.ownership.core.held())
    for shard in SHARDS:
        reported = [event for event in world.script.events if event.endswith(f" {shard.name}")]
        assert reported == [f"releasing {shard.name}", f"release {shard.name}", f"forget {shard.name}"]
        lease = world.owners[shard].lease
        assert lease is not None
        assert not lease.valid()


@pytest.mark.rule("CM-4")
async def test_stop_hands_everything_over(world: World) -> None:
    world.ownership.start()
    await world.settled()
    await world.ownership.stop()
    assert {event for event in world.script.events if event.startswith("release ")} == {
        f"release {shard.name}" for shard in SHARDS
    }


@pytest.mark.rule("CM-21")
async def test_the_streams_of_a_deleted_topic_are_removed_and_absence_alone_removes_nothing(world: World) -> None:
    world.ownership.start()
    await world.settled()
    second = ShardId(ShardKind.GROUP, "1")
    world.deleted.add(FIRST)
    world.shards = SHARDS - {FIRST, second}
    world.ownership.wake()
    await world.until(lambda: world.script.events.count("forget 0") + world.script.events.count("forget 1") == 2)
    assert "delete 0" in world.script.events
    assert "release 0" not in world.script.events
    assert "release 1" in world.script.events


@pytest.mark.rule("SC-77")
async def test_a_shard_that_cannot_be_loaded_is_dropped_and_claimed_again(world: World) -> None:
    world.shards = frozenset({FIRST})
    owner = world.owners[FIRST]
    owner.failures = [ValueError("broken"), ValueError("broken")]
    world.ownership.start()
    await world.until(lambda: len(owner.lost_for) == 1)
    world.clock.ms += 60_000
    await world.until(lambda: len(owner.lost_for) == 2)
    world.clock.ms += 60_000
    await world.settled()
    assert owner.lost_for == ["not loaded: broken"] * 2
    assert len({request.nonce for request in world.script.requests}) == 3


@pytest.mark.rule("CM-12")
async def test_a_claim_without_an_answer_is_repeated_under_its_nonce(world: World) -> None:
    world.shards = frozenset({FIRST})
    world.script.answers = [StoreUnavailableError("no answer")]
    world.ownership.start()
    await world.until(lambda: len(world.script.requests) == 1)
    world.clock.ms += 1_000
    await world.settled()
    assert len({request.nonce for request in world.script.requests}) == 1


@pytest.mark.rule("CM-19")
async def test_a_lost_tail_makes_the_owner_lose_the_shard_and_claim_it_again(world: World) -> None:
    world.ownership.start()
    await world.settled()
    before = world.ownership.lease(FIRST)
    assert before is not None
    world.script.lost_now[FIRST] = TailLostError("the last entry is gone")
    await world.until(lambda: world.owners[FIRST].lost_for == ["the last entry is gone"])
    await world.until(lambda: world.ownership.lease(FIRST) is not None)
    await world.settled()
    request = world.script.requests[-1]
    assert (request.shard, request.cont_epoch, request.floor) == (FIRST, before.epoch, before.epoch + 1)
    assert "forget 0" in world.script.events


@pytest.mark.rule("CM-3", "GC-32a")
async def test_a_lease_that_is_not_renewed_lapses_and_comes_back_with_a_pause_counted(world: World) -> None:
    world.ownership.start()
    await world.settled()
    lease = world.ownership.lease(FIRST)
    assert lease is not None
    world.script.up = False
    world.clock.ms += 3_000
    assert not lease.valid()
    pauses = lease.pauses
    world.script.up = True
    await world.until(lease.valid)
    assert lease.pauses > pauses
    assert world.ownership.lease(FIRST) is lease


@pytest.mark.rule("CM-14")
async def test_hints_that_could_not_be_written_follow(world: World) -> None:
    world.script.hints_fail = 2
    world.ownership.start()
    await world.until(lambda: len(world.script.hinted) == len(SHARDS))
    assert {node for node, _ in world.script.hinted.values()} == {1}


@pytest.mark.rule("CM-4")
async def test_a_replay_under_way_is_cancelled_when_its_shard_goes(world: World) -> None:
    world.shards = frozenset({FIRST})
    world.owners[FIRST].gate.clear()
    world.ownership.start()
    await world.until(lambda: world.loading == ["0"])
    world.nodes = [world.node(2)]
    world.ownership.wake()
    await world.until(lambda: "release 0" in world.script.events)
    assert world.loading == []


@pytest.mark.rule("GC-153", "CM-86")
async def test_a_shard_whose_replay_failed_counts_as_failed_until_one_succeeds_or_another_node_is_to_serve_it(
    world: World,
) -> None:
    world.shards = frozenset({FIRST})
    owner = world.owners[FIRST]
    owner.failures = [ValueError("broken"), ValueError("broken")]

    def states() -> list[HostState]:
        return shard_states(world.ownership.core, ShardKind.GROUP)

    world.ownership.start()
    await world.until(lambda: len(owner.lost_for) == 1)
    assert states() == [HostState.FAILED], "even while the shard is not held"
    owner.gate.clear()
    world.clock.ms += 60_000
    await world.until(lambda: len(world.loaded) == 2)
    assert states() == [HostState.FAILED], "even while loading is retried"
    owner.gate.set()
    await world.until(lambda: len(owner.lost_for) == 2)
    world.clock.ms += 60_000
    await world.settled()
    assert states() == [HostState.ACTIVE]
    assert shard_states(world.ownership.core, ShardKind.TOPIC) == []
    owner.failures = [ValueError("broken")] * 9
    world.script.lost_now[FIRST] = TailLostError("gone")
    world.clock.ms += 60_000
    await world.until(lambda: len(owner.lost_for) >= 4)
    assert states() == [HostState.FAILED]
    world.nodes = [world.node(2)]
    world.ownership.wake()
    await world.until(lambda: HostState.FAILED not in states())


@pytest.mark.rule("CM-86")
async def test_one_faulty_shard_holds_up_neither_the_others_nor_the_nodes_readiness(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.owners[FIRST].failures = [ValueError("entry 7-1 is damaged")] * 1_000
    world.ownership.start()
    await world.until(lambda: world.ownership.settled(except_faulty=True))
    assert set(world.ownership.serving()) == SHARDS - {FIRST}
    assert world.ownership.core.faulty() == [FIRST]
    assert not world.ownership.settled()
    await world.until(lambda: world.loaded.count(FIRST.name) >= 4, pause_ms=30_000)
    said = capsys.readouterr()
    reported = (said.out + said.err).count("shard_unavailable")
    assert reported == 1, "logged once, not at each attempt"
    world.owners[FIRST].failures.clear()
    await world.settled(pause_ms=30_000)
    assert world.ownership.core.faulty() == []


@pytest.mark.rule("CM-86")
async def test_a_store_that_is_away_makes_no_shard_faulty(world: World) -> None:
    world.owners[FIRST].failures = [StoreUnavailableError("away")] * 3
    world.ownership.start()
    await world.until(lambda: world.loaded.count(FIRST.name) >= 2)
    assert world.ownership.core.faulty() == []
    await world.until(lambda: world.loaded.count(FIRST.name) >= 4, pause_ms=30_000)
    await world.settled(pause_ms=30_000)
