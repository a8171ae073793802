"""InitProducerId: idempotent producers, transactional ones that know KIP-890, and those that do not."""

from __future__ import annotations

from functools import partial

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests import init_producer_id
from kip932.acls import Operation, ResourceType
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest, InitProducerIdResponse
from kip932.errors import ClusterAuthorizationFailedError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection, allow, answered

REQUEST = api("InitProducerId").request
answer = partial(answered, "InitProducerId")
FOUND = InitProducerIdResponse(producer_id=2**62, producer_epoch=0)


@pytest.mark.rule("KL-47")
@pytest.mark.parametrize("version", range(7))
@virtual
async def test_an_idempotent_producer_gets_an_id(version: int) -> None:
    connection = ScriptedConnection(init_producer_id=FOUND)
    asked = REQUEST(transactional_id=None, producer_id=7, producer_epoch=3)
    got = await answer(version, asked, connection, init_producer_id.answer)
    assert (got.error_code, got.producer_id, got.producer_epoch) == (0, 2**62, 0)
    assert connection.request.producer_id == (7 if version >= 3 else -1)
    assert not connection.request.HasField("transactional_id")
    if version >= 6:
        assert (got.ongoing_txn_producer_id, got.ongoing_txn_producer_epoch) == (-1, -1)


@pytest.mark.rule("KL-48")
@pytest.mark.parametrize("version", range(5))
@virtual
async def test_a_transactional_producer_without_kip_890_is_refused_and_the_node_is_not_asked(version: int) -> None:
    connection = ScriptedConnection(init_producer_id=FOUND)
    got = await answer(version, REQUEST(transactional_id="payments"), connection, init_producer_id.answer)
    assert (got.error_code, got.producer_id, got.producer_epoch) == (31, -1, -1)
    assert connection.calls == []


@pytest.mark.rule("KL-102")
@pytest.mark.parametrize("version", [5, 6])
@virtual
async def test_a_transactional_producer_gets_what_the_node_gives_it(version: int) -> None:
    connection = ScriptedConnection(init_producer_id=InitProducerIdResponse(producer_id=2**62, producer_epoch=8))
    asked = REQUEST(transactional_id="payments", transaction_timeout_ms=5_000, producer_id=2**62, producer_epoch=7)
    got = await answer(version, asked, connection, init_producer_id.answer)
    assert (got.error_code, got.producer_id, got.producer_epoch) == (0, 2**62, 8)
    assert connection.request == InitProducerIdRequest(
        transactional_id="payments", transaction_timeout_ms=5_000, producer_id=2**62, producer_epoch=7
    )


@pytest.mark.rule("KL-102")
@pytest.mark.parametrize("asked", [{"enable2_pc": True}, {"keep_prepared_txn": True}])
@virtual
async def test_transactions_in_two_phases_are_refused(asked: dict[str, bool]) -> None:
    connection = ScriptedConnection(init_producer_id=FOUND)
    got = await answer(6, REQUEST(transactional_id="payments", **asked), connection, init_producer_id.answer)
    assert (got.error_code, got.producer_id, connection.calls) == (53, -1, [])


@pytest.mark.rule("KL-105")
@virtual
async def test_an_epoch_that_has_no_room_is_an_error() -> None:
    node = InitProducerIdResponse(producer_id=2**62, producer_epoch=2**15)
    got = await answer(
        5, REQUEST(transactional_id="t"), ScriptedConnection(init_producer_id=node), init_producer_id.answer
    )
    assert (got.error_code, got.producer_id, got.producer_epoch) == (-1, -1, -1)


@pytest.mark.rule("KL-48")
@virtual
async def test_a_caller_that_may_not_use_the_transactional_id_learns_no_more() -> None:
    allowed = [allow(Operation.WRITE, "mine", ResourceType.TRANSACTIONAL_ID)]
    for version, name, code in ((4, "mine", 31), (4, "theirs", 53), (5, "mine", 0), (5, "theirs", 53)):
        connection = ScriptedConnection(allowed, init_producer_id=FOUND)
        got = await answer(version, REQUEST(transactional_id=name), connection, init_producer_id.answer)
        assert got.error_code == code
    got = await answer(5, REQUEST(transactional_id=""), ScriptedConnection(), init_producer_id.answer)
    assert got.error_code == 42


@pytest.mark.rule("KL-40")
@virtual
async def test_a_refusal_of_the_node_is_that_of_the_answer() -> None:
    for refused in (
        InitProducerIdResponse(
            error_code=ErrorCode.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED, producer_id=-1, producer_epoch=-1
        ),
        None,
    ):
        node = ClusterAuthorizationFailedError("no") if refused is None else refused
        connection = ScriptedConnection(init_producer_id=node)
        got = await answer(4, REQUEST(transactional_id=None), connection, init_producer_id.answer)
        assert (got.error_code, got.producer_id, got.producer_epoch) == (31, -1, -1)
