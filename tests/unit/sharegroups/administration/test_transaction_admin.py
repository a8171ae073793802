"""The admin client and transactions: pages, values, errors, and nodes that do not respond."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.errors import (
    InvalidRequestError,
    InvalidTxnStateError,
    KafkaStorageError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
from kip932.ids import TopicPartition
from sharegroups.aio.admin import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import on_fake_cluster
from tests.unit.sharegroups.aio.test_producer import producer

TX = {"transactional.id": "tx"}


def admin(fake: FakeCluster) -> Admin:
    return Admin({"bootstrap.servers": "node0:9000,node1:9000"}, transport=fake.transport())


@pytest.mark.rule("CL-105")
@on_fake_cluster()
async def test_an_abort_ends_what_is_open_and_its_producer_is_fenced_for_good(fake: FakeCluster) -> None:
    async with admin(fake) as a, producer(fake, **TX) as p:
        await p.begin_transaction()
        await p.send("t", b"1")
        fake.transactions.now_ms = 45_000
        (listed,) = await a.list_transactions(open_longer_than_ms=30_000)
        assert (listed.transactional_id, listed.state, listed.open_ms) == ("tx", "Ongoing", 45_000)
        assert await a.list_transactions(["Ongoing"], [listed.producer_id], 60_000) == []
        fake.errors["end_txn_lost"].append(1)
        aborted = await a.abort_transaction("tx")
        (partition,) = aborted.partitions
        assert (aborted.producer_epoch, aborted.open_ms, partition.topic) == (listed.producer_epoch, 45_000, "t")
        with pytest.raises(ProducerFencedError, match="an operator aborted"):
            await p.end_transaction(commit=True)
        with pytest.raises(ProducerFencedError):
            await p.begin_transaction()
        with pytest.raises(InvalidTxnStateError):
            await a.abort_transaction("tx")
    async with producer(fake, **TX) as p, p.transaction():
        await p.send("t", b"2")
    assert [committed for _, committed in fake.transactions.ended] == [False, True]


@pytest.mark.rule("CL-105")
@on_fake_cluster()
async def test_each_id_has_its_own_answer_and_pages_are_one_list(fake: FakeCluster) -> None:
    async with admin(fake) as a:
        for number in range(5):
            async with producer(fake, **{"transactional.id": f"tx-{number}"}) as p, p.transaction():
                await p.send("t", b"1", partition=0)
        fake.transactions.unreadable["worn"] = KafkaStorageError("it is damaged")
        listed = await a.list_transactions()
        assert [each.transactional_id for each in listed] == [*(f"tx-{n}" for n in range(5)), "worn"]
        assert [each.error is not None for each in listed] == [False] * 5 + [True]
        found = await a.describe_transactions(["tx-1", "unknown", "tx-1", ""])
        assert [type(each).__name__ for each in found.values()] == [
            "TransactionDescription", "TransactionalIdNotFoundError", "InvalidRequestError",
        ]  # fmt: skip
        with pytest.raises(TransactionalIdNotFoundError):
            await a.abort_transaction("unknown")
        with pytest.raises(InvalidRequestError, match="no transaction is ever in state 'Undone'"):
            await a.list_transactions(["Undone"])


@pytest.mark.rule("CL-105")
@on_fake_cluster(nodes=2)
async def test_any_node_is_asked(fake: FakeCluster) -> None:
    async with producer(fake, **TX) as p, admin(fake) as a:
        await p.begin_transaction()
        await p.send("t", b"1", partition=0)
        fake.network.stop("node1:9000")
        (listed,) = await a.list_transactions()
        found: Any = (await a.describe_transactions(["tx"]))["tx"]
        assert (listed.coordinator, found.coordinator, found.partitions) == (0, 0, (TopicPartition("t", 0),))
