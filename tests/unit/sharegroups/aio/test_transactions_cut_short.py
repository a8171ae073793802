"""Transactions whose beginning or end is cancelled or interrupted: the next one commits nothing of theirs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharegroups.errors import IllegalStateError
from sharegroups.producer import Producer as BlockingProducer
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.unit.sharegroups.producing.test_transactions import TX, outcomes, transact

from .test_producer import producer


@pytest.mark.rule("CL-101")
@pytest.mark.parametrize("in_context", [True, False])
def test_a_transaction_whose_commit_is_cancelled_is_not_committed_with_the_next(in_context: bool) -> None:
    @on_fake_cluster()
    async def played(fake: FakeCluster) -> None:
        async with producer(fake, **TX) as p:
            await transact(p, b"first")

            async def committing() -> None:
                if in_context:
                    async with p.transaction():
                        await begun()
                else:
                    await p.begin_transaction()
                    await begun()
                    await p.end_transaction(commit=True)

            async def begun() -> None:
                await p.send("t", b"stored")
                fake.hold_produce = asyncio.Event()
                await p.produce("t", b"under way", on_delivery=lambda *_: None)
                await asyncio.sleep(0.1)
                await p.produce("t", b"waiting", on_delivery=lambda *_: None)

            task = asyncio.create_task(committing())
            await asyncio.sleep(0.5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert fake.hold_produce is not None
            fake.hold_produce.set()
            await transact(p, b"next")
            assert outcomes(fake) == [(0, True), (1, False), (2, True)]
            sent = [batch for r in fake.produces for batch in r.topic_data[0].partition_data[0].batches]
            assert [b.producer_epoch for b in sent] == [0, 1, 1, 2]

    played()


@pytest.mark.rule("CL-100")
@on_fake_cluster()
async def test_a_transaction_is_refused_while_another_one_begins(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p:
        both = await asyncio.gather(p.begin_transaction(), p.begin_transaction(), return_exceptions=True)
        assert [type(each) for each in both] == [type(None), IllegalStateError]
        await p.send("t", b"a")
        await p.end_transaction(commit=True)
        await transact(p, b"b")
        assert outcomes(fake) == [(0, True), (1, True)]


@pytest.mark.rule("CL-101")
@on_fake_cluster()
async def test_an_abort_that_is_cancelled_is_made_up_for_when_the_producer_is_closed(fake: FakeCluster) -> None:
    p = producer(fake, **TX)
    await p.begin_transaction()
    await p.send("t", b"stored")
    fake.hold_produce = asyncio.Event()
    await p.produce("t", b"under way", on_delivery=lambda *_: None)
    await asyncio.sleep(0.1)
    task = asyncio.create_task(p.abort_transaction())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert outcomes(fake) == []
    fake.hold_produce.set()
    await p.close()
    assert outcomes(fake) == [(0, False)]


@pytest.mark.rule("CL-101")
def test_an_interrupted_call_of_the_blocking_producer_leaves_no_transaction_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    with BlockingProducer({"bootstrap.servers": fake.bootstrap, **TX}, transport=fake.transport()) as p:
        real = p._thread.call

        def interrupted(work: Any, take_back: Any = None) -> Any:
            monkeypatch.setattr(p._thread, "call", real)
            real(work)
            p._thread.run(take_back)
            raise KeyboardInterrupt

        monkeypatch.setattr(p._thread, "call", interrupted)
        with pytest.raises(KeyboardInterrupt), p.transaction():
            raise AssertionError("it was interrupted before")
        with pytest.raises(IllegalStateError, match="no transaction is open"):
            p.produce("t", b"stray")

        def never(work: Any) -> Any:
            monkeypatch.setattr(p._thread, "call", real)
            work.close()
            raise KeyboardInterrupt

        def cut_short() -> None:
            with p.transaction():
                p.produce("t", b"a")
                p.flush()
                monkeypatch.setattr(p._thread, "call", never)

        with pytest.raises(KeyboardInterrupt):
            cut_short()
        with p.transaction():
            p.produce("t", b"b")
    assert [(identity.epoch, committed) for identity, committed in fake.transactions.ended] == [(0, False), (1, True)]
