"""Between ownership and the log: wakes that overtake answers, claims under way when a node leaves."""

from __future__ import annotations

import asyncio

import pytest

from shard_runtime.ownership.core import OwnershipCore
from shard_runtime.ownership.lease_terms import LeaseTerms, OwnerIdentity
from shard_runtime.record_log.memory import FaultPoint, Stage
from shard_runtime.record_log.protocol import STREAM_START, OwnedElsewhere, OwnerRecord, ShardId, ShardKind
from shard_runtime.record_log.redis import scripts
from tests.simulation import determinism
from tests.simulation.world import Shape, World

SHARD = ShardId(ShardKind.GROUP, "7")
OWNER = OwnerRecord(2, 99, "h:1", 5, 0, False, "h", "h", STREAM_START)


@pytest.mark.rule("CM-4", "CM-12")
def test_a_release_that_overtakes_the_answer_to_a_claim_is_not_missed() -> None:
    core = OwnershipCore(OwnerIdentity(1, 77, "127.0.0.1:1"), LeaseTerms())

    def claims(now_ms: int) -> int:
        nodes = {ShardKind.GROUP: frozenset({1})}
        plan = core.reconcile(frozenset({SHARD}), nodes, now_ms, history_of=lambda _: "h", claims_max=9)
        return len(plan.claims)

    assert claims(0) == 1
    core.woken()  # the owner released; the claim was refused just before, and its answer is still on the way
    core.claim_answered(SHARD, OwnedElsewhere(OWNER, 3_000), 10)
    assert claims(10) == 1
    core.claim_answered(SHARD, OwnedElsewhere(OWNER, 3_000), 20)  # nobody woke it since: wait for the lease
    assert claims(20) == 0


@pytest.mark.rule("CM-4")
@pytest.mark.parametrize("held_s", [0.2, 0.9])
def test_shards_whose_claim_is_answered_while_the_node_leaves_are_handed_over(held_s: float) -> None:
    async def main() -> float:
        world = World(1, Shape.two())
        await world.open()
        await world.start("a")
        a = world.processes["a"].node.ownership
        assert a is not None
        await _settled(a)
        held = asyncio.Event()

        async def hook(point: FaultPoint) -> None:
            released = any(claim.phase == "free" for claim in a.core.shard_claims())
            if released and point.client == "b" and point.stage is Stage.REPLY and point.has(scripts.CLAIM.digest):
                held.set()
                await asyncio.sleep(held_s)

        world.store.hook = hook
        await world.start("b")
        await held.wait()
        loop = asyncio.get_running_loop()
        await world.stop("b")
        stopped = loop.time()
        await _settled(a)
        took = loop.time() - stopped
        await world.close()
        return took

    assert determinism.run(1, main) < 1


async def _settled(ownership: object) -> None:
    while True:
        await asyncio.sleep(0.01)
        claims = ownership.core.shard_claims()  # type: ignore[attr-defined]
        if claims and all(claim.phase == "serving" for claim in claims):
            return


@pytest.mark.rule("CM-12", "CM-47")
def test_a_tail_made_good_under_a_history_that_is_past_counts_as_whole_under_the_next() -> None:
    async def main() -> tuple[list[str], str]:
        world = World(1, Shape.two(replicas=2))
        await world.open()
        await world.start("a")
        node = world.processes["a"]
        ownership = node.node.ownership
        assert ownership is not None
        await _settled(ownership)
        await world.kill("a")
        world.store.fail_over()  # the next claims are lossy

        async def hook(point: FaultPoint) -> None:
            """Another fail-over comes before any renewal has confirmed what the loads made good."""
            if point.stage is Stage.SEND and point.has(scripts.RENEW.digest):
                world.store.hook = None
                world.store.fail_over()

        await world.start("a", knows_dead=True)
        again = world.processes["a"].node.ownership
        assert again is not None
        world.store.hook = hook
        await _settled(again)
        await asyncio.sleep(5)
        hashes = world.store.master.data.hashes
        tails = [value[b"tail_history"].decode() for key, value in hashes.items() if key.endswith(":owner")]
        history = world.store.master.history
        await world.close()
        return tails, history

    tails, history = determinism.run(1, main)
    assert tails
    assert set(tails) == {history}
