"""Transactions in a topic log: markers, the last stable offset, late batches, take-overs."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kip932.errors import ConcurrentTransactionsError, InvalidProducerEpochError, KafkaStorageError
from partition_leader.topic_log.core import transactions as core
from partition_leader.topic_log.core.batch import NewBatch
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.topic_log import TopicLog

from .harness import Cluster, batch

pytestmark = pytest.mark.asyncio

A, B = 71, 72


def part(producer: int, epoch: int = 0, sequence: int = 0, records: int = 1, text: str = "x") -> NewBatch:
    """A batch in the producer's transaction."""
    made = batch(records, text=text, producer=producer, epoch=epoch, sequence=sequence)
    return made._replace(is_transactional=True, transactional_id=f"t{producer}")


async def written(log: TopicLog, made: NewBatch) -> int:
    """Join the transaction, as a leader does, and append; return the base offset."""
    if log.transactions.needs_join(made.producer_id, made.producer_epoch):
        log.transactions.join(made.producer_id, made.producer_epoch)
    return (await log.append([made], 1000)).base_offsets[0]


async def committed(log: TopicLog) -> list[tuple[int, bool]]:
    """Return (first offset, aborted or not) of each batch with records that a committed read returns."""
    found = await log.read(log.log_start_offset, 1 << 20, committed=True)
    return [
        (each.base_offset, any(
            one.producer_id == each.producer_id and one.first_offset <= each.base_offset <= one.last_offset
            for one in found.aborted
        ))
        for each in found.batches
        if not each.is_control
    ]  # fmt: skip


@pytest.mark.rule("PL-006", "PL-008", "PL-802", "CM-150")
async def test_committed_reads_end_at_the_first_open_transaction_and_name_the_aborted_ones() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await written(log, part(A))
        await log.append([batch(1)], 1000)
        await written(log, part(B))
        assert (log.last_stable, log.high_watermark) == (0, 3)
        assert await committed(log) == []
        assert log.bytes_available(0, committed=True) == 0
        assert log.bytes_available(0) > 0
        await log.transactions.end(A, 0, commit=False)
        assert (log.last_stable, log.high_watermark) == (2, 4)
        assert await committed(log) == [(0, True), (1, False)]
        assert 0 < log.bytes_available(0, committed=True) < log.bytes_available(0)
        await log.transactions.end(B, 0, commit=True)
        assert log.last_stable == log.high_watermark == 5
        assert await committed(log) == [(0, True), (1, False), (2, False)]
        plain = await log.read(0, 1 << 20)
        assert [each.base_offset for each in plain.batches] == [0, 1, 2, 3, 4]
        assert plain.aborted == ()
        assert [(each.is_control, each.is_abort) for each in plain.batches[3:]] == [(True, True), (True, False)]


@pytest.mark.rule("CM-150")
async def test_a_repeated_marker_is_answered_and_adds_nothing() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        log = await one.lead()
        await written(log, part(A))
        await log.transactions.end(A, 0, commit=True)
        await log.transactions.end(A, 0, commit=True)
        assert log.high_watermark == 2
        log = await two.lead()
        await log.transactions.end(A, 0, commit=True)
        assert log.high_watermark == 2


@pytest.mark.rule("CM-150")
async def test_nothing_of_a_transaction_is_appended_behind_its_marker() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        log = await one.lead()
        log.transactions.join(A, 0)  # the transaction record has been read, and the batch is about to be queued
        await log.transactions.end(A, 0, commit=False)
        with pytest.raises(InvalidProducerEpochError):
            await log.append([part(A)], 1000)
        log.transactions.join(A, 0)  # a response from before the marker arrives late
        assert log.transactions.needs_join(A, 0)
        log = await two.lead()
        with pytest.raises(InvalidProducerEpochError):
            await log.append([part(A)], 1000)
        assert await written(log, part(A, epoch=1)) == 1


@pytest.mark.rule("CM-150")
async def test_a_batch_that_was_not_joined_is_refused_and_may_be_sent_again() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        with pytest.raises(ConcurrentTransactionsError):
            await log.append([part(A)], 1000)
        assert await written(log, part(A)) == 0
        with pytest.raises(ConcurrentTransactionsError, match="no marker here yet"):
            await written(log, part(A, epoch=1))
        assert log.high_watermark == 1


@pytest.mark.rule("CM-150")
async def test_a_marker_and_a_late_batch_in_one_flush_keep_their_order() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await written(log, part(A))
        first = log.submit([batch(1)], 1000)  # a flush is in flight, so the following appends form the next one
        marker = asyncio.ensure_future(log.transactions.end(A, 0, commit=False))
        await asyncio.sleep(0)
        late = log.submit([part(A, sequence=1)], 1000)
        await marker
        await first
        outcome = await late
        assert isinstance(outcome.error, InvalidProducerEpochError)
        assert [one.last_offset for one in (await log.read(0, 1 << 20, committed=True)).aborted] == [2]


@pytest.mark.rule("CM-150", "CM-40", "CM-43")
@pytest.mark.parametrize("snapshot_batches", [1, 3, 1000])
async def test_transactions_survive_a_takeover(snapshot_batches: int) -> None:
    async with Cluster() as cluster:
        settings = TopicLogSettings(snapshot_batches=snapshot_batches)
        one, two = cluster.node(), cluster.node()
        log = await one.lead(settings)
        await written(log, part(A))
        await written(log, part(B))
        await log.transactions.end(A, 0, commit=False)
        await written(log, part(A, epoch=1))
        await log.transactions.end(A, 1, commit=True)
        new = await two.lead(settings)
        assert list(new.transactions.open) == list(log.transactions.open)
        assert [(each.transactional_id, each.first_offset) for each in new.transactions.open] == [("t72", 1)]
        assert new.last_stable == 1
        assert await committed(new) == [(0, True)]
        assert not new.transactions.needs_join(B, 0)
        await new.transactions.end(B, 0, commit=True)
        assert await committed(new) == [(0, True), (1, False), (3, False)]
        assert [one.records for one in new.transactions.aborted_in(0, 9)] == [1]


@pytest.mark.rule("PL-827")
async def test_offsets_with_nothing_for_a_group_are_counted_by_what_it_reads() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        log = await one.lead()
        await written(log, part(A, records=5))
        await written(log, part(B, records=2))
        assert log.empty_from(0, committed=True) == 7, "nothing is decided"
        assert log.empty_from(0, committed=False) == 0
        await log.transactions.end(A, 0, commit=False)
        assert log.empty_from(0, committed=True) == 3, "the marker is beyond LAST_STABLE, too"
        await log.transactions.end(B, 0, commit=True)
        for leader in (log, await two.lead()):
            assert leader.empty_from(0, committed=True) == 5 + 1 + 1
            assert leader.empty_from(7, committed=True) == leader.empty_from(7, committed=False) == 2
            assert leader.empty_from(2, committed=True) == 2, (
                "how many of the first transaction's are before is not known"
            )
            assert leader.empty_from(9, committed=True) == 0
        await leader.move_log_start(3)
        assert leader.empty_from(0, committed=True) == 3 + 2
        await leader.raise_log_end(20)
        assert leader.holes_from(9) == 11
        assert leader.empty_from(0, committed=True) == 3 + 11, "holes might be the same offsets"


@pytest.mark.rule("CM-150", "CM-45")
async def test_a_trim_that_takes_the_first_batch_of_a_transaction_keeps_the_transaction() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        log = await one.lead()
        await written(log, part(A))
        await written(log, part(A, sequence=1))
        await written(log, part(B))
        await log.transactions.end(B, 0, commit=False)
        await log.move_log_start(1)
        assert log.last_stable == 1
        new = await two.lead()
        assert [each.producer_id for each in new.transactions.open] == [A]
        assert new.last_stable == 1
        await new.transactions.end(A, 0, commit=False)
        assert await committed(new) == [(1, True), (2, True)]
        await new.move_log_start(-1)
        third = await one.lead()
        assert third.last_stable == third.high_watermark
        assert (await third.read(third.log_start_offset, 1, committed=True)).aborted == ()


@pytest.mark.rule("CM-150", "CM-62")
async def test_no_transaction_begins_beyond_the_bound_and_markers_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "OPEN_MAX", 1)
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await written(log, part(A))
        with pytest.raises(KafkaStorageError, match="1 transactions are open"):
            await written(log, part(B))
        await log.transactions.end(A, 0, commit=True)
        assert await written(log, part(B)) == 2


@pytest.mark.rule("PL-006", "PL-808", "CM-150", "INV-2")
@pytest.mark.parametrize("seed", range(12))
async def test_what_committed_reads_show_is_what_a_model_says(seed: int) -> None:
    """Over several leaders, producers write and end transactions at random; the model knows the outcome of each
    record."""
    rng = Random(seed)
    async with Cluster() as cluster:
        nodes = [cluster.node(), cluster.node()]
        settings = TopicLogSettings(
            snapshot_batches=rng.choice((1, 4, 1000)), tail_cache_bytes=rng.choice((1, 1 << 20))
        )
        log = await nodes[0].lead(settings)
        epochs, sequences, open_at = {A: 0, B: 0}, {A: 0, B: 0}, dict[int, list[int]]()
        fate: dict[int, str] = {}
        for step in range(60):
            producer, what = rng.choice((A, B)), rng.random()
            if what < 0.15:
                fate[(await log.append([batch(1)], 1000)).base_offsets[0]] = "kept"
            elif what < 0.6:
                base = await written(log, part(producer, epochs[producer], sequences[producer], text=str(step)))
                sequences[producer] += 1
                open_at.setdefault(producer, []).append(base)
                fate[base] = "open"
            elif what < 0.9:
                commit = rng.random() < 0.5
                for _ in range(rng.choice((1, 1, 2))):
                    await log.transactions.end(producer, epochs[producer], commit=commit)
                for base in open_at.pop(producer, []):
                    fate[base] = "kept" if commit else "aborted"
                epochs[producer] += 1
                sequences[producer] = 0
            else:
                log = await nodes[step % 2].lead(settings)
            stable = min((bases[0] for bases in open_at.values()), default=log.high_watermark)
            assert log.last_stable == stable
            shown: list[tuple[int, bool]] = []
            at = 0
            while at < log.last_stable:
                found = await log.read(at, rng.choice((1, 200, 1 << 20)), committed=True)
                hidden = [(each.producer_id, each.first_offset, each.last_offset) for each in found.aborted]
                shown += [
                    (
                        each.base_offset,
                        any(p == each.producer_id and f <= each.base_offset < last for p, f, last in hidden),
                    )
                    for each in found.batches
                    if not each.is_control
                ]
                at = found.batches[-1].end_offset if found.batches else found.data_offset
            expected = [(base, fate[base] == "aborted") for base in sorted(fate) if base < stable]
            assert shown == expected
