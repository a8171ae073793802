"""A producer's transactions: requests to the cluster, results for the application, retries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    InvalidTxnStateError,
    KafkaError,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionalIdAuthorizationFailedError,
)
from sharegroups.aio.producer import Producer
from sharegroups.errors import IllegalStateError
from sharegroups.producer import Producer as BlockingProducer
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.unit.sharegroups.aio.test_producer import producer
from transaction_coordinator.core.transaction import Identity

TX = {"transactional.id": "tx"}
ONE = Identity(1001, 0)


async def transact(p: Producer, *values: bytes, fail: BaseException | None = None) -> None:
    async with p.transaction():
        for value in values:
            await p.send("t", value)
        if fail is not None:
            raise fail


def outcomes(fake: FakeCluster) -> list[tuple[int, bool]]:
    return [(identity.epoch, committed) for identity, committed in fake.transactions.ended]


@on_fake_cluster()
async def test_a_transaction_needs_an_id_and_the_end_of_the_one_before(fake: FakeCluster) -> None:
    async with producer(fake) as p:
        with pytest.raises(IllegalStateError, match=r"needs the setting transactional\.id"):
            await p.begin_transaction()
    async with producer(fake, **TX) as p:
        await p.begin_transaction()
        with pytest.raises(IllegalStateError, match="open already; end it first"):
            await p.begin_transaction()
        await p.end_transaction(commit=True)
        with pytest.raises(IllegalStateError, match="no transaction is open"):
            await p.end_transaction(commit=True)


@pytest.mark.rule("CL-100")
@on_fake_cluster()
async def test_records_of_a_transactional_producer_need_a_transaction(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:
        with pytest.raises(IllegalStateError, match="no transaction is open"):
            await p.produce("t", b"stray")
        await transact(p, b"a")
        with pytest.raises(IllegalStateError, match="no transaction is open"):
            await p.produce("t", b"stray")
    assert len(fake.produces) == 1


@pytest.mark.rule("CM-44", "CL-100", "CM-152")
@on_fake_cluster()
async def test_each_transaction_has_the_epoch_that_the_one_before_gave(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:
        await transact(p, b"a", b"b")
        with pytest.raises(LookupError):
            await transact(p, b"c", fail=LookupError())
        await transact(p)
        await transact(p, b"d")
        assert outcomes(fake) == [(0, True), (1, False), (2, True)]
        sent = [r.topic_data[0].partition_data[0].batches[0] for r in fake.produces]
        assert [(b.producer_epoch, b.base_sequence, b.is_transactional) for b in sent] == [
            (0, 0, True), (0, 1, True), (1, 0, True), (2, 0, True),
        ]  # fmt: skip
        assert fake.identities == 1


@pytest.mark.rule("CL-101")
@on_fake_cluster()
async def test_a_record_that_was_not_delivered_aborts_the_transaction_and_is_reported(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:

        async def badly() -> None:
            async with p.transaction():
                await p.produce("t", b"a")
                await p.flush()
                fake.errors["produce"].append(OutOfOrderSequenceNumberError.code)
                await p.produce("t", b"lost", on_delivery=lambda *_: None)

        with pytest.raises(OutOfOrderSequenceNumberError):
            await badly()
        await transact(p, b"next")
        assert outcomes(fake) == [(0, False), (1, True)]


@pytest.mark.rule("CL-102")
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_without_an_answer_is_asked_for_again(commit: bool) -> None:
    @on_fake_cluster()
    async def played(fake: FakeCluster) -> None:
        async with producer(fake, **TX) as p:
            fake.errors["end_txn_lost"].append(1)
            fake.errors["end_txn"].extend([CoordinatorNotAvailableError.code, ConcurrentTransactionsError.code])
            if commit:
                await transact(p, b"a")
            else:
                with pytest.raises(LookupError):
                    await transact(p, b"a", fail=LookupError())
            await transact(p, b"b")
            assert outcomes(fake) == [(0, commit), (1, True)]

    played()


@pytest.mark.rule("CL-102")
@on_fake_cluster()
async def test_an_outcome_in_doubt_is_reported_and_known_before_the_next_begins(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer(fake, **{**TX, "default.api.timeout.ms": 1_000}) as p:
        fake.errors["end_txn"].extend([CoordinatorNotAvailableError.code] * 100)
        with pytest.raises(RequestTimedOutError, match="the outcome is not known"):
            await transact(p, b"a")
        with pytest.raises(RequestTimedOutError):
            await p.begin_transaction()
        fake.errors["end_txn"].clear()
        await transact(p, b"b")
        assert outcomes(fake) == [(0, True), (1, True)]
        assert "the transaction in doubt was committed" in caplog.text


@pytest.mark.rule("CL-102")
@on_fake_cluster()
async def test_a_refusal_after_a_lost_response_leaves_the_outcome_in_doubt(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:
        fake.errors["end_txn_lost"].append(1)
        fake.errors["end_txn"].extend([0, TransactionalIdAuthorizationFailedError.code])
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            await transact(p, b"a")
        await transact(p, b"b")
        assert outcomes(fake) == [(0, True), (1, True)], "the first was committed all the same"


@pytest.mark.rule("CL-102")
@on_fake_cluster()
async def test_a_cluster_that_does_not_answer_is_reported_long_before_the_time_out(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer(fake, **TX) as p:
        fake.errors["end_txn_lost"].extend([1] * 1_000)
        ending = asyncio.create_task(transact(p, b"a"))
        await asyncio.sleep(2)
        assert caplog.text == ""
        await asyncio.sleep(5)
        assert caplog.text.count("no cluster answers at ") == 1
        assert "Start one with `sharegroups up`, or correct bootstrap.servers; it waits for default.api" in caplog.text
        with pytest.raises(RequestTimedOutError, match=r"no cluster answers at .*sharegroups up"):
            await ending
        fake.errors["end_txn_lost"].clear()


@pytest.mark.rule("CL-102", "CM-154")
@on_fake_cluster()
async def test_a_decision_whose_markers_are_not_all_written_is_a_commit(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:
        fake.transactions.unfinished = True
        await transact(p, b"a")
        assert outcomes(fake) == [(0, True)]
        fake.transactions.unfinished = False
        await transact(p, b"b")
        assert outcomes(fake) == [(0, True), (1, True)]


@pytest.mark.rule("CL-103", "CM-152")
@on_fake_cluster()
async def test_a_fenced_producer_learns_so_for_good(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:
        await transact(p, b"a")
        async with producer(fake, **TX) as other:
            await transact(other, b"b")
            with pytest.raises(ProducerFencedError):
                await transact(p, b"c")
            with pytest.raises(ProducerFencedError, match="another producer began with the same"):
                await p.begin_transaction()
            await transact(other, b"d")
    assert [committed for _, committed in outcomes(fake)] == [True, True, True]


@pytest.mark.rule("CL-103", "CM-156")
@on_fake_cluster()
async def test_a_transaction_past_its_time_out_fails_and_the_next_goes_on(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:

        async def late() -> None:
            async with p.transaction():
                await p.send("t", b"a")
                fake.transactions.time_out("tx")

        with pytest.raises(InvalidTxnStateError, match="open for longer than its"):
            await late()
        await transact(p, b"b")
    assert outcomes(fake) == [(1, True)]


@pytest.mark.rule("CM-154")
@on_fake_cluster()
async def test_a_commit_names_the_partitions_whose_leaders_confirmed_records(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:

        async def lost() -> None:
            async with p.transaction():
                await p.send("t", b"a")
                fake.transactions.forget_partitions("tx")

        with pytest.raises(InvalidTxnStateError, match="has no record of 1 of its partitions"):
            await lost()
        await transact(p, b"b")
    assert [committed for _, committed in outcomes(fake)] == [True]


@pytest.mark.rule("CL-101")
@on_fake_cluster()
async def test_an_abort_does_not_wait_for_what_a_silent_leader_has(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:
        await transact(p, b"first")
        fake.hold_produce = asyncio.Event()

        async def stuck() -> None:
            async with p.transaction():
                await p.produce("t", b"under way", on_delivery=lambda *_: None)
                await asyncio.sleep(0.1)
                await p.produce("t", b"waiting", on_delivery=heard)
                raise LookupError

        reported: list[KafkaError | None] = []

        def heard(error: KafkaError | None, _: Any) -> None:
            reported.append(error)

        with pytest.raises(LookupError):
            await stuck()
        assert [type(error) for error in reported] == [InvalidTxnStateError]
        assert outcomes(fake) == [(0, True), (1, False)]
        fake.hold_produce.set()
        await transact(p, b"next")
        assert outcomes(fake)[-1] == (2, True)


@pytest.mark.rule("CL-101")
@on_fake_cluster()
async def test_a_batch_of_an_aborted_transaction_that_comes_back_is_not_sent_in_the_next(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:
        await transact(p, b"first")
        fake.hold_produce = asyncio.Event()

        async def stuck() -> None:
            async with p.transaction():
                await p.produce("t", b"under way", on_delivery=lambda *_: None)
                await asyncio.sleep(0.1)
                raise LookupError

        with pytest.raises(LookupError):
            await stuck()
        fake.errors["produce"].append(NotLeaderOrFollowerError.code)  # normally leads to a retry
        fake.hold_produce.set()
        await transact(p, b"next")
        sent = [batch for r in fake.produces for batch in r.topic_data[0].partition_data[0].batches]
        assert [batch.producer_epoch for batch in sent if b"under way" in batch.SerializeToString()] == [1]
        assert outcomes(fake) == [(0, True), (1, False), (2, True)]


@pytest.mark.rule("CL-101")
@on_fake_cluster()
async def test_a_record_that_is_too_large_leaves_by_its_own_exception(fake: FakeCluster) -> None:
    async with producer(fake, **{**TX, "max.request.size": 100}) as p:
        with pytest.raises(MessageTooLargeError):
            await transact(p, b"a", b"x" * 200)
    assert outcomes(fake) == [(0, False)]


@pytest.mark.rule("CL-101")
@on_fake_cluster()
async def test_a_producer_that_is_closed_aborts_what_is_open(fake: FakeCluster) -> None:
    p = producer(fake, **TX)
    await p.begin_transaction()
    await p.send("t", b"a")
    await p.close()
    assert outcomes(fake) == [(0, False)]


@pytest.mark.rule("CL-104")
@on_fake_cluster()
async def test_offsets_are_refused_with_words(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:
        with pytest.raises(InvalidRequestError, match="share groups have no offsets"):
            await p.send_offsets_to_transaction({}, "g")


def badly(p: BlockingProducer) -> None:
    with p.transaction():
        p.produce("t", b"b")
        raise LookupError


@pytest.mark.rule("CL-100", "CL-101", "CL-104")
def test_the_blocking_producer_does_the_same() -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    with BlockingProducer({"bootstrap.servers": fake.bootstrap, **TX}, transport=fake.transport()) as p:
        with p.transaction():
            p.produce("t", b"a")
        with pytest.raises(LookupError):
            badly(p)
        with pytest.raises(IllegalStateError):
            p.produce("t", b"stray")
        with pytest.raises(InvalidRequestError):
            p.send_offsets_to_transaction({}, "g")
        with p.transaction():
            p.produce("t", b"c")
    assert [(identity.epoch, committed) for identity, committed in fake.transactions.ended] == [
        (0, True), (1, False), (2, True),
    ]  # fmt: skip
