"""A node's reports on transactions over the in-memory store, aborts by an operator, and requests that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.api.v1.describe_transactions_pb2 import DescribeTransactionsRequest
from kip932.api.v1.end_txn_pb2 import EndTxnRequest
from kip932.api.v1.list_transactions_pb2 import ListTransactionsRequest, ListTransactionsResponse
from kip932.errors import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
from kip932.ids import REQUEST_TRANSACTIONS_MAX, TRANSACTIONAL_ID_MAX, TopicIdPartition
from shard_runtime.record_log.redis.keys import transaction_key
from shard_runtime.rpc.binding import NO_CALLER
from tests.support.virtual_time import virtual
from tests.unit.transaction_coordinator.test_coordinator import ID, P, Q, World, opened
from transaction_coordinator.core.transaction import PARTITIONS_MAX
from transaction_coordinator.read_service import CURSOR_MAX, FILTERS_MAX, Surroundings
from transaction_coordinator.service import TransactionService

CONTEXT = NO_CALLER


def _service(world: World, name: str = "a") -> TransactionService:
    around = Surroundings(lambda: 7, lambda topic_id: {P.topic_id: "orders"}.get(topic_id, ""))
    return TransactionService(world.node(name), around)


async def _listed(service: TransactionService, **filters: Any) -> dict[str, ListTransactionsResponse.TransactionState]:
    found: dict[str, ListTransactionsResponse.TransactionState] = {}
    cursor, first = "", True
    while cursor or first:
        answer = await service.list_transactions(ListTransactionsRequest(cursor=cursor, **filters), CONTEXT)
        assert not answer.error_code, answer.error_message
        assert answer.coordinator_id == 7
        found |= {each.transactional_id: each for each in answer.transaction_states}
        cursor, first = answer.next_cursor, False
    return found


@pytest.mark.rule("CM-157")
@virtual
async def test_every_node_shows_the_transactions_of_all() -> None:
    async with World() as world:
        one, other = _service(world), _service(world, "b")
        node = world.node("c")
        await node.begin("idle", None, 5_000)
        identity = await opened(node, P, Q, TopicIdPartition(P.topic_id, 4))
        for service in (one, other):
            found = await _listed(service)
            assert {each: state.transaction_state for each, state in found.items()} == {"idle": "Empty", ID: "Ongoing"}
            assert (found[ID].producer_id, found[ID].producer_epoch) == identity
            assert found["idle"].open_ms == -1 < found[ID].open_ms
            assert list(await _listed(service, state_filters=["Ongoing"])) == [ID]
            assert await _listed(service, producer_id_filters=[1]) == {}
            assert await _listed(service, duration_filter=60_000) == {}
            assert list(await _listed(service, duration_filter=-1)) == list(found)
        asked = DescribeTransactionsRequest(transactional_ids=["idle", ID])
        answer = await other.describe_transactions(asked, CONTEXT)
        idle, known = answer.transaction_states
        assert [(each.topic, list(each.partitions)) for each in known.topics] == [("orders", [0, 4]), ("", [3])]
        assert (known.transaction_timeout_ms, known.producer_id, known.producer_epoch) == (10_000, *identity)
        assert known.transaction_start_time_ms > 0 <= known.open_ms
        assert (idle.transaction_start_time_ms, idle.open_ms, list(idle.topics)) == (-1, -1, [])
        assert answer.coordinator_id == 7


@pytest.mark.rule("CM-157")
@virtual
async def test_a_record_that_cannot_be_read_is_reported_and_hides_no_other() -> None:
    async with World() as world:
        service = _service(world)
        await opened(world.node("b"))
        hashes = world.store.server_for("a").data.hashes
        hashes[transaction_key("worn")] = {b"r": b"?", b"c": b"", b"x": b"0"}
        found = await _listed(service)
        assert found["worn"].transaction_state == "Unreadable"
        assert "checksum" in found["worn"].error_message
        assert found[ID].transaction_state == "Ongoing"
        assert list(await _listed(service, state_filters=["Ongoing"])) == [ID]
        asked = DescribeTransactionsRequest(transactional_ids=["worn"])
        (reported,) = (await service.describe_transactions(asked, CONTEXT)).transaction_states
        assert reported.error_code == 56


@pytest.mark.rule("CM-157")
@virtual
async def test_what_cannot_be_asked_for_is_refused() -> None:
    async with World() as world:
        service = _service(world)
        for request in (
            ListTransactionsRequest(state_filters=["Ongoing"] * (FILTERS_MAX + 1)),
            ListTransactionsRequest(producer_id_filters=[1] * (FILTERS_MAX + 1)),
            ListTransactionsRequest(cursor="a" * (CURSOR_MAX + 1)),
        ):
            with pytest.raises(InvalidRequestError):
                await service.list_transactions(request, CONTEXT)
        refused = await service.list_transactions(ListTransactionsRequest(cursor="nowhere|0"), CONTEXT)
        assert refused.error_code == InvalidRequestError.code
        strange = await service.list_transactions(ListTransactionsRequest(state_filters=["Dead", "Undead"]), CONTEXT)
        assert (list(strange.unknown_state_filters), strange.error_code) == (["Undead"], 0)
        many = DescribeTransactionsRequest(transactional_ids=["x"] * (REQUEST_TRANSACTIONS_MAX + 1))
        with pytest.raises(InvalidRequestError):
            await service.describe_transactions(many, CONTEXT)
        ids = ["", "unknown", "ü" * TRANSACTIONAL_ID_MAX, "y" * 1_000_000]
        answer = await service.describe_transactions(DescribeTransactionsRequest(transactional_ids=ids), CONTEXT)
        wrong, unknown = InvalidRequestError.code, TransactionalIdNotFoundError.code
        assert [each.error_code for each in answer.transaction_states] == [wrong, unknown, wrong, wrong]
        assert answer.ByteSize() < 3_000


@pytest.mark.rule("CM-157")
@virtual
async def test_one_answer_shows_no_more_partitions_than_a_transaction_can_have() -> None:
    async with World() as world:
        node = world.node("b")
        for name, count in (("wide", PARTITIONS_MAX), ("narrow", 1)):
            identity = await node.begin(name, None, 5_000)
            await node.join(name, identity, [TopicIdPartition(b"p" * 16, n) for n in range(count)])
        asked = DescribeTransactionsRequest(transactional_ids=["wide", "narrow"])
        wide, narrow = (await _service(world).describe_transactions(asked, CONTEXT)).transaction_states
        assert len(wide.topics[0].partitions) == PARTITIONS_MAX
        assert (narrow.error_code, "alone" in narrow.error_message) == (InvalidRequestError.code, True)


@pytest.mark.rule("CM-157")
@virtual
async def test_a_store_that_does_not_answer_is_reported_and_not_taken_for_an_empty_one() -> None:
    async with World() as world:
        service = _service(world)
        world.store.cut_off("a")
        refused = await service.list_transactions(ListTransactionsRequest(), CONTEXT)
        assert refused.error_code == CoordinatorNotAvailableError.code


@pytest.mark.rule("CM-158")
@virtual
async def test_an_operator_aborts_what_is_open_and_the_producer_learns_that_it_is_fenced() -> None:
    async with World() as world:
        service, node = _service(world), world.node("b")
        identity = await opened(node)

        async def end(*, committed: bool = False, by_operator: bool = True) -> Any:
            asked = EndTxnRequest(
                transactional_id=ID,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=committed,
                by_operator=by_operator,
            )
            return await service.end_txn(asked, CONTEXT)

        assert (await end(committed=True)).error_code == InvalidRequestError.code
        answer = await end()
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, -1, -1)
        assert sorted(world.leaders.written) == [(P, 0, False), (Q, 0, False)]
        assert (await end()).error_code == 0
        assert (await end(committed=True, by_operator=False)).error_code == ProducerFencedError.code
        with pytest.raises(ProducerFencedError):
            await node.begin(ID, identity, 5_000)
        after = await node.begin(ID, None, 5_000)
        identity = after
        assert (await end()).error_code == InvalidTxnStateError.code
