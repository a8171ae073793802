"""Takeovers: the end of the log, producers, lost tails, jumps."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kip932.errors import OutOfOrderSequenceNumberError
from partition_leader.meter import LeaderMeter
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.topic_log import BeyondLogError, TopicLog
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import StreamId
from tests.twin import FaultPoint, Stage

from .harness import SHARD, Cluster, batch

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("CM-40")
async def test_a_new_owner_goes_on_where_the_log_ended_and_keeps_the_end_by_a_marker() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        old = await one.lead()
        sent = [batch(i + 1, text=f"t{i}") for i in range(5)]
        for each in sent:
            await old.append([each], 1000)
        new = await two.lead()
        assert (new.log_start_offset, new.high_watermark) == (0, 15)
        entries = await two.log.read_back(SHARD.streams[0], StreamId(new.epoch + 1, 0), 2)
        assert [(str(entry.id), entry.kind) for entry in entries] == [(f"{new.epoch}-15", "M"), (f"{new.epoch}-0", "C")]
        assert (await new.append([batch(1, text="new")], 1000)).base_offsets == (15,)
        for offset, index in ((0, 0), (1, 1), (2, 1), (14, 4)):
            assert (await new.read(offset, 1)).batches[0].data == sent[index].data
        assert len((await new.read(0, 1 << 20)).batches) == 6


@pytest.mark.rule("CM-40")
async def test_offsets_are_found_across_many_epochs_and_empty_ones() -> None:
    async with Cluster() as cluster:
        nodes = [cluster.node() for _ in range(3)]
        sent = []
        log = await nodes[0].lead()
        for round_ in range(60):
            if round_ % 3 == 0:
                await log.close()
                log = await nodes[round_ % 2].lead()
                await log.close()
                log = await nodes[2].lead()
            if round_ % 7:
                one = batch(1 + round_ % 2, text=f"r{round_}")
                base = (await log.append([one], 1000)).base_offsets[0]
                sent.append((base, one))
        await log.close()
        log = await nodes[0].lead(TopicLogSettings(read_ahead_bytes=1))
        for base, one in sent:
            found = (await log.read(base + one.record_count - 1, 1)).batches[0]
            assert (found.base_offset, found.data) == (base, one.data)
        assert log.high_watermark == sent[-1][0] + sent[-1][1].record_count


@pytest.mark.rule("CM-40")
async def test_an_owner_that_died_between_claim_and_marker_does_not_shorten_the_log() -> None:
    async with Cluster() as cluster:
        one, two, three = cluster.node(), cluster.node(), cluster.node()
        log = await one.lead()
        await log.append([batch(4)], 1000)
        await two.claim()
        log = await three.lead()
        assert log.high_watermark == 4
        assert (await log.append([batch(1)], 1000)).base_offsets == (4,)


@pytest.mark.rule("CM-43")
@pytest.mark.parametrize("snapshot_batches", [1, 3, 1000])
async def test_producers_survive_a_takeover(snapshot_batches: int) -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        settings = TopicLogSettings(snapshot_batches=snapshot_batches)
        old = await one.lead(settings)
        sent = [batch(2, producer=7, epoch=1, sequence=2 * i) for i in range(8)]
        bases = [(await old.append([each], 1000)).base_offsets[0] for each in sent]
        new = await two.lead(settings)
        for each, base in list(zip(sent, bases, strict=True))[-5:]:
            assert (await new.append([each], 1000)).base_offsets == (base,)
        with pytest.raises(OutOfOrderSequenceNumberError):
            await new.append([batch(1, producer=7, epoch=1, sequence=40)], 1000)
        assert (await new.append([batch(1, producer=7, epoch=1, sequence=16)], 1000)).base_offsets == (16,)
        assert new.high_watermark == 17


@pytest.mark.rule("CM-43", "CM-45")
async def test_producers_of_deleted_records_survive_a_takeover() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        old = await one.lead()
        for sequence in range(3):
            await old.append([batch(producer=7, sequence=sequence)], 1000)
        assert await old.move_log_start(2) == 2
        await old.append([batch(producer=8, sequence=0)], 1000)
        assert await old.move_log_start(-1) == 4
        new = await two.lead()
        assert new.log_start_offset == 4
        assert (await new.append([batch(producer=7, sequence=2)], 1000)).base_offsets == (2,)
        assert (await new.append([batch(producer=7, sequence=3)], 1000)).base_offsets == (4,)
        assert (await new.append([batch(producer=8, sequence=0)], 1000)).base_offsets == (3,)


@pytest.mark.rule("CM-43", "P-11")
async def test_a_takeover_reads_the_index_only_behind_the_snapshot() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        settings = TopicLogSettings(snapshot_batches=10)
        old = await one.lead(settings)
        for i in range(35):
            await old.append([batch(1, producer=7, sequence=i)], 1000)
        loads: list[tuple[int, bool]] = []

        class Meter(LeaderMeter):
            def end_not_raised(self) -> None:
                raise AssertionError("nothing was refused")

            def loaded(self, indexed: int, jumped: bool) -> None:
                loads.append((indexed, jumped))

        claimed = await two.claim()
        lease = Lease(SHARD, 2, claimed.epoch, deadline_ms=10**9, clock=cluster.clock, give_up=lambda *_: None)
        log = await TopicLog.load(two.log, lease, claimed, cluster.clock, settings, meter=Meter())
        assert loads == [(5, False)]
        assert (await log.append([batch(1, producer=7, sequence=35)], 1000)).base_offsets == (35,)


@pytest.mark.rule("CM-18")
async def test_the_control_log_does_not_grow_without_bound() -> None:
    async with Cluster() as cluster:
        node = cluster.node()
        settings = TopicLogSettings(snapshot_batches=4, control_entries_max=8)
        log = await node.lead(settings)
        for i in range(100):
            await log.append([batch(1)], 1000)
            await log.move_log_start(i // 2)
        await log.close(drain_s=5)
        tip = await node.log.tip(SHARD.streams[1])
        assert tip is not None
        assert tip.length <= 16
        await node.log.drop(SHARD)
        for _ in range(30):  # idle owners leave claims; loading trims a full control log
            log = await node.lead(settings)
            await log.close(drain_s=5)
        tip = await node.log.tip(SHARD.streams[1])
        assert tip is not None
        assert tip.length <= 16
        log = await node.lead(settings)
        assert (log.log_start_offset, log.high_watermark) == (49, 100)


@pytest.mark.rule("CM-45")
async def test_the_log_start_is_found_under_the_claims_of_many_idle_owners() -> None:
    async with Cluster() as cluster:
        node = cluster.node()
        log = await node.lead()
        for _ in range(10):
            await log.append([batch(1)], 1000)
        await log.move_log_start(6)
        await log.close(drain_s=5)
        for _ in range(40):  # more than two pages of the control log
            log = await node.lead()
            assert (log.log_start_offset, log.high_watermark) == (6, 10)
            await log.close(drain_s=5)


@pytest.mark.rule("CM-47", "CM-12")
async def test_a_lost_tail_with_another_owner_jumps_and_leaves_a_hole_that_is_passed_at_once() -> None:
    async with Cluster(replicas=1) as cluster:
        one, two = cluster.node(), cluster.node()
        log = await one.lead()
        await log.append([batch(3, text="kept")], 1000)
        cluster.store.master.followers[0].paused = True
        await log.append([batch(2, text="lost")], 1000)
        await log.close()
        cluster.store.fail_over()
        cluster.store.master.release_replicas()
        log = await two.lead(TopicLogSettings(jump_offsets=1_000))
        assert (log.log_start_offset, log.high_watermark) == (0, 1_003)
        at_hole = await log.read(3, 100)
        assert (at_hole.batches, at_hole.data_offset) == ((), 1_003)
        assert (await log.append([batch(1, text="new")], 1000)).base_offsets == (1_003,)
        over = await log.read(3, 100)
        assert (over.batches[0].base_offset, over.data_offset) == (1_003, 1_003)
        assert [each.base_offset for each in (await log.read(0, 1 << 20)).batches] == [0, 1_003]
        await log.close()
        log = await one.lead(TopicLogSettings(jump_offsets=1_000))  # this time nothing was lost
        assert log.high_watermark == 1_004


@pytest.mark.rule("CM-105")
async def test_a_hole_is_known_to_every_later_leader_however_much_follows_it() -> None:
    async with Cluster() as cluster:
        settings = TopicLogSettings(jump_offsets=100)
        log = await cluster.node().lead(settings, suspect=True)
        assert (log.holes_from(0), log.holes_from(40), log.holes_from(100)) == (100, 60, 0)
        for _ in range(30):  # more entries than a single read at the end of an epoch returns
            await log.append([batch(10)], 1000)
        assert log.holes_from(0) == 100
        await log.close()
        log = await cluster.node().lead(settings, suspect=True)
        assert (log.high_watermark, log.holes_from(0), log.holes_from(100)) == (500, 200, 100)
        await log.raise_log_end(550)
        assert log.holes_from(100) == 150
        await log.close()
        log = await cluster.node().lead(settings)
        assert (log.holes_from(0), log.holes_from(390), log.holes_from(550)) == (250, 150, 0)


@pytest.mark.rule("CM-47")
async def test_a_lost_tail_that_memory_holds_is_appended_again_under_the_same_offsets() -> None:
    async with Cluster(replicas=1) as cluster:
        node = cluster.node()
        log = await node.lead()
        await log.append([batch(3, text="kept", producer=5, sequence=0)], 1000)
        cluster.store.master.followers[0].paused = True
        lost = [batch(2, text="lost", producer=5, sequence=3), batch(1, text="lost too", producer=5, sequence=5)]
        for each in lost:
            await log.append([each], 1000)
        await log.close()
        cluster.store.fail_over()
        cluster.store.master.release_replicas()
        log = await node.lead(memory=log.memory())
        assert log.high_watermark == 6
        assert [each.data for each in (await log.read(3, 1 << 20)).batches] == [each.data for each in lost]
        assert (await log.append([lost[1]], 1000)).base_offsets == (5,)
        assert (await log.append([batch(1, producer=5, sequence=6)], 1000)).base_offsets == (6,)


@pytest.mark.rule("CM-43")
async def test_producers_of_a_tail_that_was_appended_again_outlast_the_trim_of_their_batches() -> None:
    async with Cluster(replicas=1) as cluster:
        node = cluster.node()
        for _ in range(6):  # each claim is an entry of the control log, which the last load rewrites
            log = await node.lead()
            await log.close()
        log = await node.lead()
        await log.append([batch(3, text="kept", producer=5, sequence=0)], 1000)
        cluster.store.master.followers[0].paused = True
        await log.append([batch(2, text="lost", producer=5, sequence=3)], 1000)
        await log.close()
        cluster.store.fail_over()
        cluster.store.master.release_replicas()
        settings = TopicLogSettings(control_entries_max=6)
        log = await node.lead(settings, memory=log.memory())
        assert log.high_watermark == 5
        assert await log.move_log_start(-1) == 5
        await log.close()
        log = await cluster.node().lead(settings)
        assert (await log.append([batch(1, producer=5, sequence=5)], 1000)).base_offsets == (5,)


@pytest.mark.rule("CM-47", "CM-19")
async def test_memory_is_not_written_back_over_another_owners_batches() -> None:
    async with Cluster(replicas=1) as cluster:
        one, two = cluster.node(), cluster.node()
        log = await one.lead()
        await log.append([batch(3, text="kept")], 1000)
        cluster.store.master.followers[0].paused = True
        await log.append([batch(2, text="lost")], 1000)
        await log.close()
        memory = log.memory()
        cluster.store.fail_over()
        cluster.store.master.release_replicas()
        settings = TopicLogSettings(jump_offsets=100)
        other = await two.lead(settings)
        await other.append([batch(1, text="other")], 1000)
        await other.close()
        log = await one.lead(settings, memory=memory)
        assert log.high_watermark == 104  # 3 + the jump + the other owner's record: no offset before it is missing
        assert [each.base_offset for each in (await log.read(0, 1 << 20)).batches] == [0, 103]


@pytest.mark.rule("CM-47")
async def test_the_end_in_memory_counts_even_where_its_batches_are_gone_from_the_cache() -> None:
    async with Cluster(replicas=1) as cluster:
        node = cluster.node()
        settings = TopicLogSettings(jump_offsets=100, tail_cache_bytes=0)
        log = await node.lead(settings)
        await log.append([batch(3)], 1000)
        cluster.store.master.followers[0].paused = True
        await log.append([batch(20)], 1000)
        await log.close()
        cluster.store.fail_over()
        cluster.store.master.release_replicas()
        log = await node.lead(settings, memory=log.memory())
        assert log.high_watermark == 123


@pytest.mark.rule("CM-47")
async def test_a_suspect_log_jumps_even_when_it_seems_empty() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(jump_offsets=1_000), suspect=True)
        assert (await log.append([batch(1)], 1000)).base_offsets == (1_000,)
        assert (await log.read(0, 100)).data_offset == 1_000


@pytest.mark.rule("CM-145")
@pytest.mark.parametrize("kept", [3, 0])
async def test_entries_without_an_owner_record_were_restored_and_the_end_jumps_once(kept: int) -> None:
    """A restored topic is older than its store's history; its log may have a claim alone."""
    async with Cluster() as cluster:
        settings = TopicLogSettings(jump_offsets=1_000)
        log = await cluster.node().lead(settings)
        if kept:
            await log.append([batch(kept, text="kept")], 1000)
        await log.close(drain_s=5)
        cluster.store.master.effect("del", SHARD.owner_key, None)
        with capture_logs() as lines:
            log = await cluster.node().lead(settings, suspect=True)
        jumps = [line for line in lines if line["event"] == "log_end_jumped_after_restore"]
        assert [line["log_level"] for line in jumps] == ["info"]
        assert not any(line["log_level"] == "error" for line in lines)
        assert (log.log_start_offset, log.high_watermark, log.holes_from(0)) == (0, kept + 1_000, 1_000)
        assert (await log.append([batch(1)], 1000)).base_offsets == (kept + 1_000,)
        await log.close(drain_s=5)
        assert (await cluster.node().lead(settings)).high_watermark == kept + 1_001


@pytest.mark.rule("CM-145")
async def test_a_new_log_has_no_owner_record_and_does_not_jump() -> None:
    async with Cluster() as cluster:
        assert (await cluster.node().lead()).high_watermark == 0


@pytest.mark.rule("CM-47")
async def test_after_a_jump_a_producer_may_go_on_in_mid_sequence() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(jump_offsets=1_000), suspect=True)
        assert (await log.append([batch(1, producer=5, sequence=77)], 1000)).base_offsets == (1_000,)


@pytest.mark.rule("CM-47", "CM-40")
async def test_the_end_is_raised_for_a_share_partition_and_stays_raised() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        log = await one.lead()
        await log.append([batch(2)], 1000)
        assert await log.raise_log_end(1) == 2
        assert await log.raise_log_end(50) == 50
        assert (await log.read(2, 100)).data_offset == 50
        await log.close()
        log = await two.lead()
        assert log.high_watermark == 50
        assert (await log.read(10, 100)).data_offset == 50
        assert (await log.append([batch(1)], 1000)).base_offsets == (50,)
        assert (await log.read(2, 100)).batches[0].base_offset == 50


@pytest.mark.rule("CM-83")
async def test_state_further_beyond_the_log_than_a_lost_tail_is_not_believed() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        not_raised: list[int] = []

        class Meter(LeaderMeter):
            def end_not_raised(self) -> None:
                not_raised.append(1)

        log = await one.lead(TopicLogSettings(jump_offsets=100), meter=Meter())
        await log.append([batch(2)], 1000)
        for false in (103, 2**62, 2**63 - 1):
            with pytest.raises(BeyondLogError, match=f"ends at 2, but state is stored up to {false}"):
                await log.raise_log_end(false)
        assert len(not_raised) == 3
        assert (await log.append([batch(1)], 1000)).base_offsets == (2,)
        await log.close()
        log = await two.lead(TopicLogSettings(jump_offsets=100))
        assert log.high_watermark == 3
        assert await log.raise_log_end(103) == 103


@pytest.mark.rule("CM-40")
async def test_the_marker_is_durable_before_anybody_may_produce() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        log = await one.lead()
        await log.append([batch(2)], 1000)
        await log.close()
        lost: list[int] = []

        async def lose_marker(point: FaultPoint) -> None:
            if point.stage is Stage.REPLY and point.has("MULTI") and not lost:
                lost.append(1)
                cluster.store.cut_all()

        cluster.store.hook = lose_marker
        log = await two.lead()
        assert lost == [1]
        assert log.high_watermark == 2
        assert (await log.append([batch(1)], 5000)).base_offsets == (2,)
