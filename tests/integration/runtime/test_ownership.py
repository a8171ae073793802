"""Processes that share shards through the store: placement, hand-over, kills, lost connections, fail-overs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import pytest

from kip932.errors import NotCoordinatorError
from shard_runtime.cluster.metadata import PartitionsAdded, TopicCreated, TopicDeleted
from shard_runtime.record_log.protocol import LogError, Renewal, Renewed, ShardId, ShardKind
from tests.integration.runtime.harness import LEASE_MS, Cluster, until
from tests.support.toy_shard import Get, Put
from tests.twin.store import FaultPoint, Stage

pytestmark = pytest.mark.asyncio

ALL = {str(number) for number in range(10)}


@pytest.mark.rule("CM-11", "CM-12", "CM-4")
async def test_shards_spread_over_nodes_and_come_back_when_one_leaves() -> None:
    async with Cluster() as cluster:
        a = await cluster.start("a")
        await until(lambda: a.serving() == ALL)
        for shard in ALL:
            await a.submit(shard, Put("k", int(shard)))
        b = await cluster.start("b")
        await until(lambda: bool(b.serving()) and a.serving() | b.serving() == ALL)
        assert not a.serving() & b.serving()
        moved = next(iter(b.serving()))
        assert await b.submit(moved, Get("k")) == int(moved)
        await cluster.stop(b)
        await until(lambda: a.serving() == ALL, 1.0)
        assert await a.submit(moved, Get("k")) == int(moved)


@pytest.mark.rule("CM-4", "CM-12")
async def test_what_was_released_before_a_joining_node_listens_is_claimed_at_once() -> None:
    """The joining node's first claims are refused and it misses the notice of the release: if it relied on these alone,
    it would wait until the lease ends."""
    long = {"lease.ms": "60000"}
    async with Cluster() as cluster:
        a, b = cluster.process("a", long), cluster.process("b", long)
        cluster.processes += [a, b]
        await a.start()
        await until(lambda: a.serving() == ALL)
        listens = asyncio.Event()

        async def hold(point: FaultPoint) -> None:
            if point.client == "b" and point.stage is Stage.COMMAND and point.has("SUBSCRIBE"):
                await listens.wait()

        cluster.store.hook = hold
        await b.start()
        ownership = b.node.ownership
        assert ownership is not None
        waiting = ownership.core.claim_of
        await until(lambda: a.serving() != ALL)
        given = ALL - a.serving()
        # On a busy machine b may claim some of them only after their release, and so serve those already.
        await until(
            lambda: all((t := waiting(ShardId(ShardKind.GROUP, s))) and t.waits_for_owner for s in given - b.serving())
        )
        listens.set()
        await until(lambda: b.serving() >= given and a.serving() | b.serving() == ALL)


@pytest.mark.rule("CM-4", "CM-12")
async def test_a_killed_node_is_replaced_after_its_lease() -> None:
    async with Cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        await until(lambda: bool(a.serving()) and bool(b.serving()) and a.serving() | b.serving() == ALL)
        shard = next(iter(a.serving()))
        await a.submit(shard, Put("k", 7))
        await cluster.kill(a)
        assert shard not in b.serving()
        await until(lambda: b.serving() == ALL)
        assert await b.submit(shard, Get("k")) == 7


@pytest.mark.rule("CM-12", "CM-73")
async def test_a_restart_under_the_lock_takes_its_shards_back_at_once() -> None:
    async with Cluster() as cluster:
        a = await cluster.start("a")
        await until(lambda: a.serving() == ALL)
        await cluster.kill(a)
        loop = asyncio.get_running_loop()
        started = loop.time()
        again = await cluster.start("a", dead=frozenset({a.incarnation}))
        assert again.node.registry.record.node_id == 1
        await until(lambda: bool(again.serving()))
        assert loop.time() - started < LEASE_MS / 1000


@pytest.mark.rule("CM-1")
async def test_a_name_that_another_process_holds_is_refused() -> None:
    async with Cluster() as cluster:
        await cluster.start("a")
        second = cluster.process("a")
        with pytest.raises(LogError, match="node name a"):
            await second.start()
        await second.close()


@pytest.mark.rule("CM-3", "CM-12")
async def test_a_node_cut_off_from_the_store_fences_itself_before_another_serves() -> None:
    async with Cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        await until(lambda: bool(a.serving()) and bool(b.serving()) and a.serving() | b.serving() == ALL)
        shard = next(iter(a.serving()))
        host = a.hosts[ShardId(ShardKind.GROUP, shard)]
        lease = a.node.ownership.lease(host.shard_id)  # type: ignore[union-attr]
        assert lease is not None
        cluster.store.cut_off("a")

        def b_serves() -> bool:
            served = shard in b.serving()
            assert not (served and lease.valid())
            return served

        await until(b_serves)
        with pytest.raises(NotCoordinatorError):
            await host.submit(Get("k"))
        await b.submit(shard, Put("k", 1))
        cluster.store.heal()
        await until(lambda: shard in a.serving() and shard not in b.serving())
        assert await a.submit(shard, Get("k")) == 1


@pytest.mark.rule("CM-3", "CM-10")
async def test_a_store_node_that_does_not_answer_costs_no_lease_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Redis Cluster: half of the shards are on a store node that does not respond to renewals."""
    async with Cluster() as cluster:
        a = await cluster.start("a")
        await until(lambda: a.serving() == ALL)
        ownership, renew = a.node.ownership, a.log.renew
        assert ownership is not None
        answers = asyncio.Event()

        def on_the_other_node(shard: ShardId) -> bool:
            return shard.kind is ShardKind.GROUP and int(shard.name) >= 5

        async def of_two_nodes(renewals: Sequence[Renewal]) -> list[Renewed | None]:
            if any(on_the_other_node(renewal.shard) for renewal in renewals):
                await answers.wait()
            return await renew(renewals)

        monkeypatch.setattr(a.log, "renew", of_two_nodes)
        monkeypatch.setattr(a.log, "history_of", lambda shard: f"{a.log.history}{on_the_other_node(shard)}")
        lease = ownership.lease(ShardId(ShardKind.GROUP, "0"))
        assert lease is not None
        for _ in range(3):
            deadline_ms = lease.deadline_ms
            await until(lambda before=deadline_ms: lease.deadline_ms > before)  # type: ignore[misc]
        monkeypatch.undo()
        answers.set()


@pytest.mark.rule("CM-3", "CM-19")
async def test_short_cuts_of_the_connection_cost_no_ownership() -> None:
    async with Cluster() as cluster:
        a = await cluster.start("a")
        await until(lambda: a.serving() == ALL)
        ownership = a.node.ownership
        assert ownership is not None
        epochs = {claim.shard: claim.epoch for claim in ownership.core.held()}
        for n in range(3):
            cluster.store.cut_all()
            await a.submit("0", Put("k", n))
        await asyncio.sleep(0.3)
        assert {claim.shard: claim.epoch for claim in ownership.core.held()} == epochs


@pytest.mark.rule("CM-11a", "CM-12", "CM-19")
async def test_after_a_restart_of_the_store_everything_is_served_again_and_nothing_confirmed_is_gone() -> None:
    async with Cluster() as cluster:
        a = await cluster.start("a")
        await until(lambda: a.serving() == ALL)
        await a.submit("3", Put("k", 5))
        cluster.store.restart()
        assert await a.submit("3", Get("k")) == 5
        await until(lambda: a.serving() == ALL)
        await a.submit("3", Put("k", 6))
        assert await a.submit("3", Get("k")) == 6


@pytest.mark.rule("CM-13")
async def test_giving_a_shard_up_claims_it_again_above_the_epoch_asked_for() -> None:
    async with Cluster() as cluster:
        a = await cluster.start("a")
        await until(lambda: a.serving() == ALL)
        ownership = a.node.ownership
        assert ownership is not None
        shard = ShardId(ShardKind.GROUP, "2")
        lease = ownership.lease(shard)
        assert lease is not None
        lease.give_up("fenced by a stored epoch", lease.epoch + 1_000)
        assert not lease.valid()
        await until(lambda: ownership.lease(shard) is not None and "2" in a.serving())
        assert ownership.lease(shard).epoch > lease.epoch + 1_000  # type: ignore[union-attr]


@pytest.mark.rule("CM-20", "CM-21")
async def test_topic_shards_come_and_go_with_the_metadata() -> None:
    async with Cluster() as cluster:
        a = await cluster.start("a")
        topic = TopicCreated("t", bytes(range(16)), 2)
        await a.node.metadata.change(lambda image: [topic])
        await until(lambda: len(a.leaders) == 2 and all(leader.lease for leader in a.leaders.values()))
        await a.node.metadata.change(lambda image: [PartitionsAdded(topic.topic_id, 3)])
        await until(lambda: len(a.leaders) == 3 and all(leader.lease for leader in a.leaders.values()))
        shard = next(iter(a.leaders))
        assert await a.log.tip(shard.streams[0]) is not None
        leaders = dict(a.leaders)
        await a.node.metadata.change(lambda image: [TopicDeleted(topic.topic_id, "t")])
        await until(lambda: all(leader.reported[-2:] == ["releasing", "lost"] for leader in leaders.values()))
        for _ in range(100):
            if await a.log.tip(shard.streams[0]) is None:
                break
            await asyncio.sleep(0.01)
        assert await a.log.tip(shard.streams[0]) is None


@pytest.mark.rule("CM-14")
async def test_every_node_finds_owners_through_hints() -> None:
    async with Cluster() as cluster:
        a, b = await cluster.start("a"), await cluster.start("b")
        await until(lambda: bool(a.serving()) and bool(b.serving()) and a.serving() | b.serving() == ALL)
        by_name = {"a": a, "b": b}
        await asyncio.sleep(0.3)
        for shard in ALL:
            owner = await b.node.owners.find(ShardId(ShardKind.GROUP, shard))
            assert owner is not None
            assert shard in by_name[owner.node.name].serving()


@pytest.mark.rule("GC-1", "SR-2")
@pytest.mark.parametrize(
    ("name", "stored"),
    [("offsets.topic.num.partitions", 10), ("share.coordinator.state.topic.num.partitions", 4)],
)
async def test_another_number_of_shards_than_the_clusters_refuses_the_start(name: str, stored: int) -> None:
    async with Cluster() as cluster:
        await cluster.start("a")
        other = cluster.process("b", {name: "7"})
        with pytest.raises(LogError, match=rf"set {re.escape(name)}={stored}"):
            await other.start()
        await other.close()
