"""Between ownership and the log: wake-ups that overtake replies, claims in flight when a node leaves."""

from __future__ import annotations

import asyncio

import pytest

from shard_runtime.config.process_settings import LEASE_MS
from shard_runtime.ownership.core import OwnershipCore
from shard_runtime.ownership.lease_terms import LeaseTerms, OwnerIdentity
from shard_runtime.record_log.protocol import STREAM_START, OwnedElsewhere, OwnerRecord, ShardId, ShardKind
from shard_runtime.record_log.redis import scripts
from tests.simulation import determinism
from tests.simulation.world import Shape, World
from tests.twin import FaultPoint, Stage

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
    core.woken()  # the owner has released; the claim was refused just before, and that reply is still on the way
    core.claim_answered(SHARD, OwnedElsewhere(OWNER, 3_000), 10)
    assert claims(10) == 1
    core.claim_answered(SHARD, OwnedElsewhere(OWNER, 3_000), 20)  # no wake-up since then: wait for the lease
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


@pytest.mark.rule("CM-4")
def test_a_leaving_node_owns_on_claims_nothing_and_has_no_entry_once_it_has_given_all_up() -> None:
    sent: list[str] = []
    words = {scripts.CLAIM.digest: "claim", scripts.RELEASE.digest: "release", '"leaving"': "leaving"}
    words["PUBLISH {meta}:wake released"] = "publish"

    async def main() -> tuple[dict[bytes, bytes], float]:
        world = World(1, Shape.two())
        await world.open()
        for name in "ab":
            await world.start(name)
        await world.settled()

        async def hook(point: FaultPoint) -> None:
            if point.client == "b" and point.stage is Stage.SEND:
                for command in point.commands:
                    reported = " ".join(str(part) for part in command)
                    sent.extend(name for word, name in words.items() if word in reported)

        shards = _serving(world)
        world.store.hook = hook
        loop = asyncio.get_running_loop()
        began = loop.time()
        stopping = asyncio.create_task(world.stop("b"))
        took = await _until_serving(world, "a", shards) - began
        await stopping
        left = dict(world.store.master.data.hashes["{nodes}"])
        await world.close()
        return left, took

    left, took = determinism.run(1, main)
    assert took < 0.1, "others hear that it leaves, and need not wait until they read the node list again"
    assert len(left) == 1
    assert sent[0] == "leaving"
    assert [word for word in sent if word != "leaving"] == ["release", "publish"] * 4


@pytest.mark.rule("CM-12")
def test_an_owner_record_is_written_by_four_functions_and_by_nothing_else() -> None:
    """Nodes start, take over from each other and leave; a deleted topic's owner record is removed with its streams
    (CM-21)."""
    functions = {scripts.CLAIM, scripts.RENEW, scripts.RELEASE, scripts.REPLAY_FROM}
    digests = {script.digest for script in functions}
    found: set[str] = set()

    async def main() -> None:
        world = World(1, Shape.two())
        await world.open()

        async def hook(point: FaultPoint) -> None:
            if point.stage is Stage.SEND:
                for command in point.commands:
                    if any(isinstance(word, str) and word.endswith(":owner") for word in command[1:]):
                        name = str(command[1] if command[0] == "EVALSHA" else command[0])
                        found.add("a function" if name in digests else name)

        world.store.hook = hook
        for name in "ab":
            await world.start(name)
            await world.settled()
        await world.kill("b")
        await asyncio.sleep(10)
        await world.start("b")
        await world.settled()
        await world.stop("b")
        await world.close()

    determinism.run(1, main)
    assert found == {"a function", "HMGET"}


@pytest.mark.rule("CM-4")
@pytest.mark.parametrize("seed", range(3))
def test_what_a_killed_node_owned_is_served_within_a_lease_and_two_seconds(seed: int) -> None:
    async def main() -> float:
        world = World(seed, Shape.two())
        await world.open()
        for name in "ab":
            await world.start(name)
        await world.settled()
        await asyncio.sleep(1 + seed / 3)
        shards = _serving(world)
        loop = asyncio.get_running_loop()
        await world.kill("a")
        began = loop.time()
        took = await _until_serving(world, "b", shards) - began
        lease_ms = world.processes["b"].node.settings[LEASE_MS]
        await world.close()
        return took - lease_ms / 1000

    assert -2 < determinism.run(seed, main) < 2


def _serving(world: World, *names: str) -> set[ShardId]:
    """Return the shards that the named processes serve; if no name is given, those that any process serves."""
    owners = [world.processes[name].node.ownership for name in names or world.processes]
    return {shard for owner in owners if owner is not None for shard in owner.serving()}


async def _until_serving(world: World, name: str, shards: set[ShardId]) -> float:
    """Wait until a process serves exactly these shards; return the time."""
    while _serving(world, name) != shards:  # noqa: ASYNC110 - no single event signals it
        await asyncio.sleep(0.01)
    return asyncio.get_running_loop().time()


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
            """Fail over again before any renewal has confirmed what the loads repaired."""
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
