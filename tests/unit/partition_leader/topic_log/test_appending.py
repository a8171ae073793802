"""Appending: group commit, idempotence, refusals, time-outs, fencing, the lease."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from kip932.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceNumberError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.writer import StoreNearlyFullError
from shard_runtime.record_log.protocol import StreamId
from shard_runtime.record_log.store_room import StoreRoom
from shard_runtime.record_log.store_usage import StoreUsage
from tests.support.claims import LEASE_MS
from tests.twin import FaultPoint, Stage

from .harness import SHARD, Cluster, Counted, batch, until

pytestmark = pytest.mark.asyncio


class Heard:
    """A listener that records every event."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def high_watermark_advanced(self, high_watermark: int) -> None:
        self.events.append(("hw", high_watermark))

    def log_start_advanced(self, log_start: int) -> None:
        self.events.append(("start", log_start))

    def log_closed(self, error: KafkaError) -> None:
        self.events.append(("closed", type(error)))


@pytest.mark.rule("CM-40", "CM-41")
async def test_an_entry_carries_the_next_offset_in_its_id_and_the_producers_bytes_as_they_are() -> None:
    async with Cluster() as cluster:
        node = cluster.node()
        log = await node.lead()
        first, second = batch(3, text="a"), batch(2, text="b")
        assert (await log.append([first], 1000)).base_offsets == (0,)
        assert (await log.append([second], 1000)).base_offsets == (3,)
        entries = await node.log.read(SHARD.streams[0], StreamId(0, 0), None, 10)
        assert [(str(entry.id), entry.kind) for entry in entries] == [
            (f"{log.epoch}-0", "C"),
            (f"{log.epoch}-3", "B"),
            (f"{log.epoch}-5", "B"),
        ]
        result = log.read_cached(0, 1 << 20)
        assert result is not None
        assert [one.data for one in result.batches] == [first.data, second.data]
        assert result.high_watermark == 5


@pytest.mark.rule("CM-42", "P-9")
async def test_what_arrives_during_a_flush_forms_the_next_one() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        flushes: list[int] = []

        async def count(point: FaultPoint) -> None:
            if point.stage is Stage.SEND and point.has("MULTI"):
                flushes.append(sum(command[0] == "XADD" for command in point.commands))

        cluster.store.hook = count
        first = log.submit([batch()], 1000)
        await until(lambda: bool(flushes))
        later = [log.submit([batch()], 1000) for _ in range(20)]
        assert (await first).base_offsets == (0,)
        assert [(await one).base_offsets[0] for one in later] == list(range(1, 21))
        assert flushes == [1, 20]


@pytest.mark.rule("CM-113")
async def test_a_flush_takes_no_more_batches_than_were_under_way_and_one_more_request() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        flushes: list[int] = []

        async def count(point: FaultPoint) -> None:
            if point.stage is Stage.SEND and point.has("MULTI"):
                entries = [command for command in point.commands if command[:2] == ("XADD", SHARD.streams[0])]
                flushes.append(len(entries))

        cluster.store.hook = count
        sent = [log.submit([batch()], 1000)]
        await until(lambda: bool(flushes))
        sent += [log.submit([batch()] * size, 1000) for size in (511, 512, 512, 1)]
        assert [(await one).error for one in sent] == [None] * 5
        assert flushes == [1, 1_023, 512, 1]


@pytest.mark.rule("CM-42", "PL-008", "PL-006")
async def test_the_high_watermark_moves_only_when_the_store_has_confirmed() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        heard = Heard()
        log.add_listener(heard)
        gate = asyncio.Event()

        async def hold(point: FaultPoint) -> None:
            if point.stage is Stage.REPLY and point.has("MULTI"):
                await gate.wait()

        cluster.store.hook = hold
        appended = log.submit([batch(4)], 1000)
        await until(lambda: cluster.store.master.data.streams[SHARD.streams[0]].last[1] == 4)
        assert (log.high_watermark, log.log_end) == (0, 4)
        empty = log.read_cached(0, 1000)
        assert empty is not None
        assert empty.batches == ()
        latest = await log.offset_for(-1)
        assert latest is not None
        assert latest.offset == 0
        gate.set()
        assert (await appended).error is None
        assert heard.events == [("hw", 4)]
        log.remove_listener(heard)


@pytest.mark.rule("CM-43")
async def test_a_repeated_batch_answers_its_first_offset_and_is_written_once() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        one = batch(2, producer=9, sequence=0)
        two = batch(3, producer=9, sequence=2)
        first = log.submit([one], 1000)
        same_flush = log.submit([one], 1000)
        assert (await first).base_offsets == (await same_flush).base_offsets == (0,)
        assert (await log.append([two], 1000)).base_offsets == (2,)
        assert (await log.append([one], 1000)).base_offsets == (0,)
        assert (await log.append([one, two], 1000)).base_offsets == (0, 2)
        assert log.high_watermark == 5


@pytest.mark.rule("CM-43")
async def test_a_repetition_is_answered_only_after_the_first_attempt_could_be() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        gate, held = asyncio.Event(), []

        async def hold(point: FaultPoint) -> None:
            if point.stage is Stage.REPLY and point.has("MULTI"):
                held.append(1)
                await gate.wait()

        cluster.store.hook = hold
        one = batch(1, producer=9, sequence=0)
        first = log.submit([one], 1000)
        await until(lambda: bool(held))
        again = log.submit([one], 1000)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not again.done()
        gate.set()
        assert (await first).base_offsets == (await again).base_offsets == (0,)


@pytest.mark.rule("CM-43")
async def test_a_gap_and_an_old_epoch_are_refused_and_leave_nothing_behind() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await log.append([batch(1, producer=9, epoch=1, sequence=0)], 1000)
        with pytest.raises(OutOfOrderSequenceNumberError):
            await log.append([batch(1, producer=9, epoch=1, sequence=2)], 1000)
        with pytest.raises(InvalidProducerEpochError):
            await log.append([batch(1, producer=9, epoch=0, sequence=1)], 1000)
        with pytest.raises(OutOfOrderSequenceNumberError):
            await log.append(
                [batch(1, producer=9, epoch=1, sequence=1), batch(1, producer=9, epoch=1, sequence=5)], 1000
            )
        assert log.high_watermark == 1
        assert (await log.append([batch(1, producer=9, epoch=1, sequence=1)], 1000)).base_offsets == (1,)
        assert log.high_watermark == 2  # it was stored, not taken for a repetition of the refused batch


@pytest.mark.rule("CM-13")
async def test_a_definite_refusal_is_undone_and_its_offsets_are_given_again() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await log.append([batch(1, producer=9, sequence=0)], 1000)
        cluster.store.master.refuse = "OOM"
        one, two = batch(2, producer=9, sequence=1), batch(1, producer=9, sequence=3)
        refused = [log.submit([one], 1000), log.submit([two], 1000)]
        assert [type((await future).error) for future in refused] == [KafkaStorageError, KafkaStorageError]
        cluster.store.master.refuse = "NOREPLICAS"
        with pytest.raises(NotEnoughReplicasError):
            await log.append([one], 1000)
        cluster.store.master.refuse = None
        assert (await log.append([one], 1000)).base_offsets == (1,)
        assert (await log.append([two], 1000)).base_offsets == (3,)
        assert log.high_watermark == 4


async def test_refused_writes_are_logged_once_and_counted_by_record() -> None:
    async with Cluster() as cluster:
        counted = Counted()
        with capture_logs() as lines:
            log = await cluster.node().lead(TopicLogSettings(queue_max_bytes=100), meter=counted)
            cluster.store.master.refuse = "OOM"
            refused = [log.submit([batch(2)], 1000), log.submit([batch(3), batch(4)], 1000)]
            assert {type((await future).error) for future in refused} == {KafkaStorageError}
            for _ in range(50):
                with pytest.raises(KafkaStorageError, match="OOM"):
                    await log.append([batch(1)], 1000)
            cluster.store.master.refuse = None
            with pytest.raises(KafkaStorageError, match="pass the limit of 100"):
                log.submit([batch(5, text="x" * 200)], 1000)
        assert counted.records == [2 + 3 + 4, *[1] * 50, 5]
        reported = [line for line in lines if line["event"] == "topic_writes_refused"]
        assert len(reported) == 1
        assert reported[0]["records"] == 9
        assert reported[0]["log_level"] == "warning"
        assert "OOM" in reported[0]["cause"]
        assert reported[0]["shard"] == SHARD.name


@pytest.mark.rule("CM-15", "CM-42")
async def test_past_its_time_out_a_produce_is_answered_so_and_may_still_be_committed() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        gate = asyncio.Event()

        async def hold(point: FaultPoint) -> None:
            if point.stage is Stage.REPLY and point.has("MULTI"):
                await gate.wait()

        cluster.store.hook = hold
        sent = log.submit([batch(1, producer=9, sequence=0)], 1)
        await until(lambda: log.log_end == 1)
        queued = log.submit([batch(1, producer=9, sequence=1)], 1)
        cluster.clock.ms += 2
        assert isinstance((await sent).error, RequestTimedOutError)
        assert isinstance((await queued).error, RequestTimedOutError)
        gate.set()
        assert (await log.append([batch(1, producer=9, sequence=0)], 1000)).base_offsets == (0,)
        assert log.high_watermark == 1


async def test_a_flush_is_counted_with_the_time_that_the_store_took() -> None:
    async with Cluster() as cluster:
        meter = Counted()
        log = await cluster.node().lead(meter=meter)

        async def take_time(point: FaultPoint) -> None:
            if point.stage is Stage.REPLY and point.has("MULTI"):
                cluster.clock.ms += 40

        cluster.store.hook = take_time
        await log.append([batch(3), batch(2)], 1000)
    assert meter.flushes == [(2, 5, 40)]


@pytest.mark.rule("SR-9", "CM-19", "CM-40")
async def test_a_lost_reply_is_resolved_and_the_no_op_goes_to_the_control_log() -> None:
    async with Cluster() as cluster:
        node = cluster.node()
        log = await node.lead(TopicLogSettings(snapshot_batches=3))
        broken: list[int] = []

        async def cut(point: FaultPoint) -> None:
            if point.stage is Stage.REPLY and point.has("MULTI") and not broken:
                broken.append(1)
                cluster.store.cut_all()

        cluster.store.hook = cut
        assert (await log.append([batch(2)], 5000)).base_offsets == (0,)
        control = await node.log.read(SHARD.streams[1], StreamId(0, 0), None, 10)
        assert [entry.kind for entry in control] == ["C", "N"]
        for expected in (2, 3, 4, 5):  # a snapshot is written after the no-op
            assert (await log.append([batch(1)], 5000)).base_offsets == (expected,)
        assert log.high_watermark == 6


@pytest.mark.rule("CM-13", "PL-008", "PL-007")
async def test_a_newer_owner_fences_the_log_and_all_callers_learn_it() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        old = await one.lead()
        await old.append([batch(2)], 1000)
        heard = Heard()
        old.add_listener(heard)
        new = await two.lead()
        with pytest.raises(NotLeaderOrFollowerError):
            await old.append([batch(1)], 1000)
        assert old.closed
        assert len(one.given_up) == 1
        assert heard.events == [("closed", NotLeaderOrFollowerError)]
        with pytest.raises(NotLeaderOrFollowerError):
            old.read_cached(0, 100)
        assert (await new.append([batch(1)], 1000)).base_offsets == (2,)
        late = Heard()
        old.add_listener(late)
        assert late.events == [("closed", NotLeaderOrFollowerError)]


@pytest.mark.rule("CM-13", "CM-21", "PL-008")
async def test_a_deleted_stream_ends_the_log_as_unknown_partition() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        cluster.store.master.effect("del", SHARD.streams[0], None)
        with pytest.raises(UnknownTopicOrPartitionError):
            await log.append([batch(1)], 1000)


@pytest.mark.rule("CM-3")
async def test_nothing_is_answered_past_the_lease_and_all_again_once_it_is_renewed() -> None:
    async with Cluster() as cluster:
        node = cluster.node()
        log = await node.lead()
        await log.append([batch(1)], 1000)
        cluster.clock.ms = LEASE_MS
        for call in (lambda: log.read_cached(0, 10), lambda: log.submit([batch()], 10), log.check_leader):
            with pytest.raises(NotLeaderOrFollowerError):
                call()
        with pytest.raises(NotLeaderOrFollowerError):
            await log.offset_for(-1)
        assert node.lease is not None
        node.lease.extend(LEASE_MS * 2)
        assert (await log.append([batch(1)], 1000)).base_offsets == (1,)


@pytest.mark.rule("CM-3")
async def test_a_lease_that_lapses_during_the_flush_withholds_the_offset() -> None:
    async with Cluster() as cluster:
        node = cluster.node()
        log = await node.lead()

        async def lapse(point: FaultPoint) -> None:
            if point.stage is Stage.REPLY and point.has("MULTI"):
                cluster.clock.ms = LEASE_MS

        cluster.store.hook = lapse
        with pytest.raises(NotLeaderOrFollowerError):
            await log.append([batch(1, producer=4, sequence=0)], 1000)
        assert node.lease is not None
        node.lease.extend(LEASE_MS * 2)
        assert (await log.append([batch(1, producer=4, sequence=0)], 1000)).base_offsets == (0,)


@pytest.mark.rule("CM-46", "CM-62")
async def test_a_full_queue_refuses_and_takes_again_when_it_is_written() -> None:
    async with Cluster() as cluster:
        size = len(batch(1).data)
        log = await cluster.node().lead(TopicLogSettings(queue_max_bytes=2 * size))
        taken = [log.submit([batch(1)], 1000), log.submit([batch(1)], 1000)]
        with pytest.raises(KafkaStorageError, match="nothing was written"):
            log.submit([batch(1)], 1000)
        assert [(await one).error for one in taken] == [None, None]
        assert (await log.append([batch(1)], 1000)).base_offsets == (2,)


@pytest.mark.rule("CM-214", "CM-215")
async def test_a_nearly_full_store_refuses_batches_and_takes_log_starts_and_markers() -> None:
    room = StoreRoom(lambda _: "s:1")
    room.serve(lambda: 1)
    limit = 100_000

    def read(used: int) -> None:
        room.ask("s:1")
        room.read("s:1", StoreUsage(used, limit))

    async with Cluster() as cluster:
        counted = Counted()
        read(limit // 2)
        with capture_logs() as lines:
            log = await cluster.node().lead(meter=counted, room=room)
            mine = batch(1, producer=7, sequence=0)
            assert (await log.append([mine], 1000)).base_offsets == (0,)
            read(limit * 96 // 100)
            for _ in range(3):
                with pytest.raises(StoreNearlyFullError, match=r"store\.produce\.memory\.percent"):
                    await log.append([batch(2, producer=7, sequence=1)], 1000)
            await log.transactions.end(9, 0, commit=False)
            assert await log.move_log_start(-1) == 2
            read(limit // 2)
            assert (await log.append([batch(2, producer=7, sequence=1)], 1000)).base_offsets == (2,)
            read(limit // 2)
            sent = [log.submit([batch(1, text="x" * 30_000)], 1000)]
            read(limit // 2)
            with pytest.raises(StoreNearlyFullError):
                log.submit([batch(1, text="x" * 30_000)], 1000)
            assert [(await one).error for one in sent] == [None]
            await asyncio.sleep(0)
            read(limit // 2)
            assert (await log.append([batch(1, text="x" * 30_000)], 1000)).base_offsets == (5,)
        assert counted.full == 2 * 3 + 1
        reported = [line for line in lines if line["event"] == "topic_writes_refused"]
        assert [line["records"] for line in reported][:1] == [2]


@pytest.mark.rule("CM-15", "CM-42")
async def test_new_work_is_refused_while_the_store_is_away() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        cluster.store.reachable = False
        cluster.store.cut_all()
        sent = log.submit([batch(1)], 100_000)
        await until(lambda: not log._commit._log.available_for(SHARD))
        with pytest.raises(NotEnoughReplicasError):
            log.submit([batch(1)], 1000)
        cluster.store.heal()
        assert (await sent).base_offsets == (0,)


async def test_closing_answers_everybody_and_draining_writes_first() -> None:
    async with Cluster() as cluster:
        one = cluster.node()
        log = await one.lead()
        drained = log.submit([batch(2)], 1000)
        await log.close(drain_s=5)
        assert (await drained).base_offsets == (0,)
        await one.log.drop(SHARD)
        log = await one.lead()
        gate = asyncio.Event()

        async def hold(point: FaultPoint) -> None:
            if point.stage is Stage.REPLY and point.has("MULTI"):
                await gate.wait()

        cluster.store.hook = hold
        failed = log.submit([batch(1)], 1000)
        await until(lambda: log.log_end == 3)
        await log.close()
        assert isinstance((await failed).error, NotLeaderOrFollowerError)
        assert (log.log_end, log.memory().log_end) == (3, 2)
        left = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("topic-log")]
        assert left == [], "none of its flushes or trims runs when the log is released"
        gate.set()
