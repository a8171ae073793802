"""EndTxn: the outcome is the node's, and the answer has the identity of the next transaction."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests import end_txn
from kip932.acls import Operation, ResourceType
from kip932.api.v1.describe_transactions_pb2 import DescribeTransactionsResponse
from kip932.api.v1.end_txn_pb2 import EndTxnResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import CoordinatorNotAvailableError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection, allow, answered

PRODUCER = 2**62
NEXT = EndTxnResponse(producer_id=PRODUCER, producer_epoch=4)
NOT_YET = EndTxnResponse(producer_id=-1, producer_epoch=-1)
answer = partial(answered, "EndTxn", 5)


def asked(*, committed: bool = True) -> Any:
    return api("EndTxn").request(
        transactional_id="payments", producer_id=PRODUCER, producer_epoch=3, committed=committed
    )


def refused(code: int) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=ErrorCode.ValueType(code), producer_id=-1, producer_epoch=-1, error_message="a reason"
    )


def described(epoch: int, code: int = 0) -> DescribeTransactionsResponse:
    response = DescribeTransactionsResponse()
    response.transaction_states.add(
        transactional_id="payments",
        producer_id=PRODUCER,
        producer_epoch=epoch,
        error_code=ErrorCode.ValueType(code),
    )
    return response


class Node(ScriptedConnection):
    """Answers one EndTxn after the other as `ends` says, and DescribeTransactions with `found`."""

    def __init__(self, *ends: EndTxnResponse, found: DescribeTransactionsResponse | None = None) -> None:
        left = list(ends)
        super().__init__(end_txn=lambda _: left.pop(0), describe_transactions=found or described(3))

    @property
    def names(self) -> list[str]:
        """The RPCs that were called."""
        return [name for name, _ in self.calls]


@pytest.mark.rule("KL-104")
@pytest.mark.parametrize("committed", [True, False])
@virtual
async def test_the_answer_has_the_identity_of_the_next_transaction(committed: bool) -> None:
    node = Node(NEXT)
    got = await answer(asked(committed=committed), node, end_txn.answer)
    assert (got.error_code, got.producer_id, got.producer_epoch) == (0, PRODUCER, 4)
    request = node.request
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("payments", PRODUCER, 3)
    assert (request.committed, request.by_operator, len(request.topics)) == (committed, False, 0)


@pytest.mark.rule("KL-104")
@virtual
async def test_while_markers_are_missing_the_client_is_to_ask_again() -> None:
    node = Node(NOT_YET)
    got = await answer(asked(), node, end_txn.answer)
    assert (got.error_code, got.producer_id, got.producer_epoch) == (51, -1, -1)
    assert node.names == ["end_txn", "describe_transactions"]
    assert list(node.calls[1][1].transactional_ids) == ["payments"]


@pytest.mark.rule("KL-104")
@virtual
async def test_markers_that_are_written_meanwhile_need_no_other_request() -> None:
    node = Node(NOT_YET, NEXT, found=described(4))
    got = await answer(asked(), node, end_txn.answer)
    assert (got.error_code, got.producer_id, got.producer_epoch) == (0, PRODUCER, 4)
    assert node.names == ["end_txn", "describe_transactions", "end_txn"]


@pytest.mark.rule("KL-104")
@virtual
async def test_a_producer_after_which_another_one_began_is_fenced() -> None:
    node = Node(NOT_YET, NOT_YET, found=described(9))
    got = await answer(asked(), node, end_txn.answer)
    assert (got.error_code, got.producer_id) == (90, -1)


@pytest.mark.rule("KL-104")
@virtual
async def test_a_record_that_cannot_be_read_is_the_error_of_the_answer() -> None:
    got = await answer(asked(), Node(NOT_YET, found=described(-1, 56)), end_txn.answer)
    assert (got.error_code, got.producer_id) == (56, -1)


@pytest.mark.rule("KL-104")
@pytest.mark.parametrize(("committed", "code", "expected"), [(True, 48, 120), (False, 48, 48), (True, 90, 90)])
@virtual
async def test_a_commit_that_came_too_late_may_be_aborted(committed: bool, code: int, expected: int) -> None:
    got = await answer(asked(committed=committed), Node(refused(code)), end_txn.answer)
    assert (got.error_code, got.producer_id, got.producer_epoch) == (expected, -1, -1)


@pytest.mark.rule("KL-104")
@virtual
async def test_a_store_without_an_answer_is_an_error_after_which_clients_ask_again() -> None:
    connection = ScriptedConnection(end_txn=CoordinatorNotAvailableError("the store does not answer"))
    assert (await answer(asked(), connection, end_txn.answer)).error_code == 15


@pytest.mark.rule("KL-105")
@virtual
async def test_an_epoch_that_has_no_room_is_an_error() -> None:
    for epoch, code in ((2**15 - 1, 0), (2**15, -1)):
        node = Node(EndTxnResponse(producer_id=PRODUCER, producer_epoch=epoch))
        assert (await answer(asked(), node, end_txn.answer)).error_code == code


@pytest.mark.rule("KL-104")
@virtual
async def test_a_right_to_write_lets_a_caller_read_the_record_too() -> None:
    connection = ScriptedConnection([allow(Operation.WRITE, "payments", ResourceType.TRANSACTIONAL_ID)])
    refusal = connection.context.refusal(ResourceType.TRANSACTIONAL_ID, "payments", Operation.DESCRIBE)
    assert refusal is None
